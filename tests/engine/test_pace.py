from __future__ import annotations

import pytest

from sapwood.engine.pace import Pace


def test_nothing_takes_no_time_and_before_a_prompt_was_read_nobody_knows() -> None:
    pace = Pace()
    assert (pace.seconds_for(0), pace.seconds_for(1)) == (0.0, None)
    pace.saw(31, 1.0)
    pace.saw(1000, 0.0)
    assert pace.seconds_for(1) is None


def test_the_first_steps_count_alike_and_later_ones_move_the_pace_by_a_tenth() -> None:
    pace = Pace()
    pace.saw(100, 2.0)
    assert pace.seconds_for(50) == pytest.approx(1.0)
    pace.saw(100, 4.0)
    assert pace.seconds_for(1) == pytest.approx(0.03)
    for _ in range(8):
        pace.saw(100, 3.0)
    pace.saw(100, 4.0)
    assert pace.seconds_for(1) == pytest.approx(0.03 + 0.1 * 0.01)


def test_steps_that_decode_more_than_they_read_do_not_count() -> None:
    pace = Pace()
    pace.saw(64, 0.64)
    for _ in range(100):
        pace.saw(0, 8.0, decoded=64)
        pace.saw(40, 8.0, decoded=41)
    assert pace.seconds_for(100) == pytest.approx(1.0)


def test_what_is_decoded_beside_a_prompt_shares_its_time() -> None:
    pace = Pace()
    pace.saw(60, 1.0, decoded=40)
    assert pace.seconds_for(100) == pytest.approx(1.0)
