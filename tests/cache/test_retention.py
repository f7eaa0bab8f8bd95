from __future__ import annotations

import math

import pytest

from sapwood.cache.retention import Retention, stronger


@pytest.mark.parametrize(("asked", "priority"), [(500, 99), (-10, 0), (100, 99), (-1, 0), (0, 0), (99, 99)])
def test_priorities_are_clamped(asked: int, priority: int) -> None:
    assert Retention(asked).priority == priority


@pytest.mark.parametrize(
    ("retention", "now", "holds"),
    [
        (Retention(50, until=10), 100, False),
        (Retention(50, until=105), 100, True),
        (Retention(50, until=100), 100, False),
        (Retention(50), 1e9, True),
        (Retention(0), 0, False),
    ],
)
def test_a_retention_holds_until_its_end(retention: Retention, now: float, holds: bool) -> None:
    assert retention.holds(now) is holds


@pytest.mark.parametrize(
    ("one", "other", "wins"),
    [
        (Retention(99, 1), Retention(50, 300), Retention(99, 1)),
        (Retention(50, 1), Retention(50, 300), Retention(50, 300)),
        (Retention(50, 10), Retention(50), Retention(50, math.inf)),
        (Retention(50, 10), None, Retention(50, 10)),
    ],
)
def test_of_two_wishes_one_wins_as_a_pair(one: Retention, other: Retention | None, wins: Retention) -> None:
    assert stronger(one, other) == stronger(other, one) == wins


def test_no_wish_and_no_wish_is_none() -> None:
    assert stronger(None, None) is None
