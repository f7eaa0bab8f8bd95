"""The default policy: what is least likely to be used soon goes first, as learned from what was used again.

A leaf's value is the best rate at which its pages are expected to be hit from now on: over all horizons T, the
chance that it is used again within T over the time that its pages are held for that, at most T. This is the
Gittins index of keeping it (Gittins, "Bandit Processes and Dynamic Allocation Indices", JRSS B, 1979); ranking
by hits per page and second is the idea of LHD (Beckmann, Chen and Cidon, "LHD: Improving Cache Hit Rate by
Maximizing Hit Density", NSDI 2018).

The chance depends on how often a leaf was used before (its class) and for how long it has been idle (its age).
Both are counted over ghosts too, so what was evicted too early is learned from, and a prompt that comes back
late still counts as one that comes back. One-shot prompts form a class of their own, the first: a scan fills it
with leaves of little value, which replace each other and nothing else.

A policy by a sort key cannot say this: the value of a leaf changes while nothing happens to it, and it may rise.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

CLASSES = 8
"""Uses are told apart up to this many; what was used more often is one class."""

_AGES = 13
_AGE_ENDS = tuple(8.0 * 2.0**age for age in range(_AGES + 1))
"""Upper ends of the age buckets in seconds: below eight seconds, then by octaves, up to eighteen hours and beyond. The
last bucket is open, and taken to end where it would if it were not. Finer ages are mostly noise, and the best of
many horizons picks the noise."""
_AGE_BOUNDS = _AGE_ENDS[:-1]

_PRIOR_SHARE = 1 / 256
_PRIOR_CHANCE = 0.3
_MEMORY_POOLS = 32
_REFRESH_SHARE = 1 / 8
_LEAST_REFRESH = 64
_LEAST_SURVIVORS = 0.01


def age_of(idle_seconds: float) -> int:
    """Index of the age bucket, 0 .. _AGES."""
    return bisect_right(_AGE_BOUNDS, idle_seconds)


def class_of(hits: int) -> int:
    if hits < CLASSES:
        return hits - 1 if hits > 1 else 0
    return CLASSES - 1


class HitDensity:
    """Learns the values, by class and age.

    Args:
        capacity: pages of the cache; how fast old counts fade, and when values are computed anew, follows from it.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._refresh_every = max(_LEAST_REFRESH, capacity * _REFRESH_SHARE)
        self._idle = np.zeros(CLASSES)
        self._hit = np.zeros((CLASSES, _AGES + 1))
        self._held = np.diff(_AGE_ENDS, prepend=0.0)
        # Of [first age, last age] only horizons that do not end before they begin.
        self._is_horizon = np.triu(np.ones((_AGES + 1, _AGES + 1), dtype=np.bool_))
        self._fresh = 0
        self.values: list[list[float]] = []
        self._refresh()

    def began_idle(self, hits: int, pages: int) -> None:
        """Pages that were used `hits` times are no longer in use."""
        self._idle[class_of(hits)] += pages
        self._fresh += pages
        if self._fresh >= self._refresh_every:
            self._refresh()

    def reused(self, hits: int, age: int, pages: int) -> None:
        """Pages that had been used `hits` times were asked for again at that age, whether still here or not."""
        self._hit[class_of(hits), age] += pages

    def _refresh(self) -> None:
        self._fresh = 0
        while self._idle.sum() > _MEMORY_POOLS * self._capacity:
            self._idle /= 2
            self._hit /= 2
        chances = self._chances()
        survivors = 1.0 - np.cumsum(chances, axis=1) + chances
        # Within a bucket a hit comes, on average, in its middle.
        held = np.maximum(survivors - chances / 2, _LEAST_SURVIVORS) * self._held
        rates = np.divide(
            _sums(chances),
            _sums(held),
            out=np.zeros((CLASSES, *self._is_horizon.shape)),
            where=self._is_horizon,
        )
        # At equal age what was used more often is worth no less: few counts may say otherwise.
        self.values = np.maximum.accumulate(rates.max(axis=2), axis=0).tolist()

    def _chances(self) -> NDArray[np.float64]:
        """Chance that an idle page of a class is asked for at each age: counts, drawn a little to the average.

        Before anything is known, every octave of age is as likely as the next, and the youngest age as likely as
        two; so value falls with age, and the policy is least recently used.
        """
        prior = max(1.0, self._idle.sum() * _PRIOR_SHARE)
        blank = np.full(_AGES + 1, _PRIOR_CHANCE / (_AGES + 2))
        blank[0] *= 2
        average = (self._hit.sum(axis=0) + prior * blank) / (self._idle.sum() + prior)
        chances: NDArray[np.float64] = (self._hit + prior * average) / (self._idle + prior)[:, None]
        return chances


def _sums(by_age: NDArray[np.float64]) -> NDArray[np.float64]:
    """From shape (classes, ages) the sums over all stretches of ages: (classes, first age, last age)."""
    ends = np.cumsum(by_age, axis=1)
    starts = ends - by_age
    sums: NDArray[np.float64] = ends[:, None, :] - starts[:, :, None]
    return sums
