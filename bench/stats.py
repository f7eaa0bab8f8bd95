"""What is made of repeated measurements: medians, ranks, and ratios pair by pair."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    """Two values taken right after each other. `peer` is None where nobody was compared with."""

    ours: float
    peer: float | None

    @property
    def ratio(self) -> float | None:
        """ours / peer; None without a peer, or where the peer's value is 0."""
        return self.ours / self.peer if self.peer else None


@dataclass(frozen=True, slots=True)
class Spread:
    median: float
    low: float
    high: float

    @property
    def factor(self) -> float:
        """high / low: 1 is perfectly quiet. Infinite where low is 0 and high is not."""
        if self.low == self.high:
            return 1.0
        return self.high / self.low if self.low > 0 else math.inf


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two middle ones. Raises ValueError for none."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("the median of no values was asked for")
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0 to 1) of all values do not exceed (nearest rank)."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("a percentile of no values was asked for")
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"the share is {share}; it must be between 0 and 1")
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spread(values: Sequence[float]) -> Spread:
    return Spread(median(values), min(values), max(values))


def ratios(pairs: Sequence[Pair]) -> Spread | None:
    """Median, least and greatest of the pairs' ratios; None if any pair has none."""
    found = [pair.ratio for pair in pairs]
    known = [ratio for ratio in found if ratio is not None]
    return spread(known) if known and len(known) == len(found) else None
