from __future__ import annotations

import pytest

from sapwood.errors import UsageError
from sapwood.sim.curve import CurvePoint
from sapwood.sim.worth import Prices, cheapest, cost_per_million, gigabytes, steps

KV = 100_000
"""Bytes a token: 10,000 tokens to the GB."""


def point(capacity: int, reused: int, seconds: float | None = None) -> CurvePoint:
    return CurvePoint("lru", capacity, reused, 2_000_000, 0, seconds)


CURVE = [point(10_000, 500_000, 3600), point(30_000, 1_500_000, 1200), point(80_000, 1_600_000, 1100)]


def test_what_one_more_gb_buys() -> None:
    first, second = steps(CURVE, KV)
    assert (first.gb, first.tokens_per_gb, first.rate_per_gb, first.seconds_per_gb) == (
        2,
        500_000,
        0.25,
        1200,
    )
    assert (second.gb, second.tokens_per_gb, second.seconds_per_gb) == (5, 20_000, 20)
    assert steps([point(1, 0), point(2, 1)], KV)[0].seconds_per_gb is None
    assert steps(CURVE[:1], KV) == []


def test_a_million_tokens_cost_compute_and_memory() -> None:
    prices = Prices(device=4.0, memory_gb=0.1)
    # An hour of the device and 1 GB for two hours, over two million tokens.
    assert cost_per_million(CURVE[0], prices, KV, 7200) == pytest.approx((4.0 + 0.2) / 2)
    assert gigabytes(CURVE[2], KV) == 8


def test_the_cheapest_depends_on_the_price_of_memory() -> None:
    for price, capacity in ((0.0, 80_000), (0.1, 30_000), (10.0, 10_000)):
        assert cheapest(CURVE, Prices(4.0, price), KV, 3600).capacity_tokens == capacity
    alike = [point(2, 0, 10), point(1, 0, 10)]
    assert cheapest(alike, Prices(1.0, 0.0), KV, 3600).capacity_tokens == 1


def test_what_cannot_be_told() -> None:
    with pytest.raises(UsageError, match="prefill times"):
        cost_per_million(point(1, 0), Prices(1.0, 1.0), KV, 1.0)
    with pytest.raises(UsageError, match="rising capacities"):
        steps([point(2, 0), point(1, 0)], KV)
    with pytest.raises(UsageError, match="no cheapest"):
        cheapest([], Prices(1.0, 1.0), KV, 1.0)
