from __future__ import annotations

import pytest

from sapwood.errors import UsageError
from sapwood.sim.curve import CurvePoint
from sapwood.sim.worth import Rent, cost_per_million, steps

KV = 100_000
"""Bytes a token: 10,000 tokens to the GB."""


def point(capacity: int, reused: int, seconds: float | None = None) -> CurvePoint:
    return CurvePoint("lru", capacity, reused, 2_000_000, 0, seconds)


CURVE = [point(10_000, 500_000, 10_800), point(30_000, 1_500_000, 3601), point(80_000, 1_600_000, 1100)]


def test_what_one_more_gb_buys() -> None:
    first, second = steps(CURVE, KV)
    assert (first.gb, first.rate_per_gb) == (2, 0.25)
    assert second.gb == 5
    assert second.rate_per_gb == pytest.approx(0.01)
    assert steps(CURVE[:1], KV) == []


def test_a_million_tokens_cost_the_replicas_that_memory_or_reading_takes() -> None:
    """In an hour with 20,000 tokens each: three that are busy reading, two so, four for the memory."""
    rent = Rent(price_per_hour=4.0, most_tokens=20_000, seconds=3600)
    assert [rent.replicas(each) for each in CURVE] == [3, 2, 4]
    # Over two million tokens.
    assert [cost_per_million(each, rent) for each in CURVE] == pytest.approx([6.0, 4.0, 8.0])


def test_replicas_that_are_there_anyway_are_paid() -> None:
    rent = Rent(4.0, 20_000, 7200, least_replicas=3)
    assert [rent.replicas(each) for each in CURVE] == [3, 3, 4]
    assert cost_per_million(CURVE[0], rent) == pytest.approx(3 * 4.0 * 2 / 2)


def test_what_cannot_be_told() -> None:
    rent = Rent(1.0, 1, 1.0)
    with pytest.raises(UsageError, match="prefill times"):
        cost_per_million(point(1, 0), rent)
    with pytest.raises(UsageError, match="needs prompts"):
        cost_per_million(CurvePoint("lru", 1, 0, 0, 0, 1.0), rent)
    with pytest.raises(UsageError, match="rising capacities"):
        steps([point(2, 0), point(1, 0)], KV)
