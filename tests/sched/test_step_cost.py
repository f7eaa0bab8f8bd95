from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sapwood.sched.step_cost import StepCost


def test_at_first_more_rows_cost_somewhat_more() -> None:
    cost = StepCost()
    assert 1 == cost.seconds(1) < cost.seconds(2) < cost.seconds(9) < 9


def test_what_was_seen_is_believed_and_the_rest_lies_on_lines() -> None:
    cost = StepCost()
    cost.saw(1, 2.0)
    assert cost.seconds(1) == 2.0
    assert 2.0 < cost.seconds(2) < 4.0
    cost.saw(5, 4.0)
    assert cost.seconds(3) == 3.0
    assert cost.seconds(9) == 5.0, "beyond what was seen one hopes"
    cost.saw(3, 2.2)
    assert cost.seconds(2) == pytest.approx(2.1)
    assert cost.seconds(4) == pytest.approx(3.1)


def test_one_slow_step_is_not_held_against_a_size() -> None:
    cost = StepCost()
    cost.saw(1, 1.0)
    for _ in range(5):
        cost.saw(1, 10.0)
        for _ in range(20):
            cost.saw(1, 1.0)
    assert cost.seconds(1) < 1.01
    cost.saw(2, 50.0)
    assert cost.seconds(2) < 2.6, "what is seen first may be the slow one"
    for _ in range(2048):
        cost.saw(1, 1.0)
    assert cost.seconds(2) < 1.5, "what did not come again is forgotten"


def test_it_follows_what_becomes_dearer() -> None:
    cost = StepCost()
    for seconds in [1.0] * 10 + [2.0] * 100:
        cost.saw(4, seconds)
    assert cost.seconds(4) == pytest.approx(2.0, rel=0.02)


@example(seen=[(2, 5e-324), (3, 1.0)], rows=1)
@given(
    seen=st.lists(st.tuples(st.integers(1, 300), st.floats(0.0, 10.0)), max_size=30),
    rows=st.integers(1, 300),
)
def test_it_is_always_above_nothing(seen: list[tuple[int, float]], rows: int) -> None:
    cost = StepCost()
    for size, seconds in seen:
        cost.saw(size, seconds)
    assert cost.seconds(rows) > 0
