"""Bounds of a percentile, against the binomial distribution in whole numbers and against draws."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from sapwood.sim.interval import Interval, interval_of


def slow(values: list[float], share: Fraction, left: Fraction) -> Interval:
    """The narrowest pair of ranks, from 1, for which P(X(low) > q) and P(X(high) < q) are at most `left`."""
    n = len(values)
    chances = [math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(n + 1)]
    lows = [rank for rank in range(1, n + 1) if sum(chances[:rank]) <= left]
    highs = [rank for rank in range(1, n + 1) if sum(chances[rank:]) <= left]
    ordered = sorted(values)
    return Interval(ordered[max(lows, default=1) - 1], ordered[min(highs) - 1] if highs else math.inf)


@pytest.mark.parametrize("count", [1, 2, 19, 58, 59, 100, 137])
@pytest.mark.parametrize("share", [Fraction(1, 2), Fraction(19, 20)])
def test_the_bounds_are_those_of_the_binomial_distribution(count: int, share: Fraction) -> None:
    values = np.random.default_rng(count).permutation(count).astype(np.float64)
    assert interval_of(values, float(share)) == slow(list(values), share, Fraction(1, 20))


def test_of_a_hundred_values_a_p95_lies_among_the_largest_nine_or_so() -> None:
    assert interval_of(np.arange(1.0, 101.0), 0.95) == Interval(91.0, 99.0)
    assert interval_of(np.arange(1.0, 59.0), 0.95).high == math.inf


def test_it_holds_what_many_draws_have_nine_times_in_ten() -> None:
    random, held = np.random.default_rng(0), 0
    truth = -math.log(0.05)
    for _ in range(2000):
        held += interval_of(random.exponential(size=200), 0.95).holds(truth)
    assert 0.9 <= held / 2000 < 0.95


def test_many_values_overflow_nothing() -> None:
    found = interval_of(np.arange(200_000.0), 0.95)
    assert 189_800 < found.low < 190_000 < found.high < 190_200


def test_what_never_came_is_infinite_and_of_nothing_nothing_is_known() -> None:
    assert interval_of(np.array([1.0, math.inf, math.inf]), 0.5) == Interval(1.0, math.inf)
    assert math.isnan(interval_of(np.array([]), 0.95).low)
