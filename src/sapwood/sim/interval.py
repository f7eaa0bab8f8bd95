"""How sure a percentile of few values is."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SURE = 0.9
"""How often an interval holds the percentile that very many values would have, at least."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Bounds, both within; `high` is infinite where so few values set none."""

    low: float
    high: float

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


def interval_of(values: NDArray[np.float64], share: float, sure: float = SURE) -> Interval:
    """Around the percentile `share`, 0 to 1, of what `values` [n] were drawn from, each by itself, however spread.

    As many of them lie below it as heads fall in n throws of a coin with that chance, so the bounds are two of the
    values in their order, each beyond the percentile by a chance of (1 - sure) / 2 at most (David and Nagaraja, Order
    Statistics, 3rd ed. 2003, section 7.1). The smallest value is the lower bound where none is as sure as that.
    """
    ordered, left = np.sort(values), (1 - sure) / 2
    if not len(ordered):
        return Interval(math.nan, math.nan)
    below = np.cumsum(_binomial(len(ordered), share))
    low = max(0, int(np.searchsorted(below, left, side="right")) - 1)
    high = int(np.searchsorted(below, 1 - left, side="left")) + 1
    upper = float(ordered[high - 1]) if high <= len(ordered) else math.inf
    return Interval(float(ordered[low]), upper)


def _binomial(count: int, chance: float) -> NDArray[np.float64]:
    """float64 [count + 1]: of each number of heads, how likely it is."""
    heads = np.arange(count)
    ratios = np.log((count - heads) / (heads + 1)) + math.log(chance / (1 - chance))
    logs = np.concatenate([[0.0], np.cumsum(ratios)])
    weights = np.exp(logs - logs.max())
    found: NDArray[np.float64] = weights / weights.sum()
    return found
