"""The least that is enough: found wherever it lies, with few questions."""

from __future__ import annotations

import pytest

from sapwood.sim.least import least


@pytest.mark.parametrize("size", [1, 2, 3, 7, 16, 33])
def test_it_is_found_wherever_it_lies(size: int) -> None:
    for first in range(size):
        asked: list[int] = []

        def enough(choice: int, first: int = first, asked: list[int] = asked) -> bool:
            asked.append(choice)
            return choice >= first

        assert least(range(size), enough) == first
        assert len(set(asked)) <= 2 * size.bit_length()


def test_there_may_be_none() -> None:
    assert least(range(20), lambda _: False) is None
    assert least((), lambda _: True) is None


def test_far_more_than_is_enough_is_not_asked_about() -> None:
    asked: list[int] = []

    def enough(choice: int) -> bool:
        asked.append(choice)
        return choice >= 2

    assert least(range(1000), enough) == 2
    assert max(asked) < 10
