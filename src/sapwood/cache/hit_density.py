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

import math
from dataclasses import dataclass
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from sapwood.cache.evict import Lru, SortKey
from sapwood.cache.leaf_heap import LeafHeap, LeafT
from sapwood.errors import BooksError

CLASSES = 8
"""Uses are told apart up to this many; what was used more often is one class."""

_YOUNGEST = 0.5
_OCTAVE = 2
_AGES = 32
"""Ages: below half a second, then two to the octave, up to nine hours and beyond."""

_PRIOR_SHARE = 1 / 256
_PRIOR_CHANCE = 0.3
_MEMORY_POOLS = 32
_REFRESH_SHARE = 1 / 8
_LEAST_REFRESH = 64
_LEAST_SURVIVORS = 0.01
_DEPTH_STEP = 0.5


def age_of(idle_seconds: float) -> int:
    """Index of the age bucket, 0 .. _AGES."""
    if idle_seconds < _YOUNGEST:
        return 0
    return min(_AGES, 1 + int(_OCTAVE * math.log2(idle_seconds / _YOUNGEST)))


def _age_ends() -> NDArray[np.float64]:
    """Upper end of each age bucket in seconds; the last is open and taken to be as long as two before."""
    return _YOUNGEST * 2.0 ** (np.arange(_AGES + 1) / _OCTAVE)


def class_of(hits: int) -> int:
    return min(max(hits, 1), CLASSES) - 1


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
        self._ends = _age_ends()
        self._held = np.diff(self._ends, prepend=0.0)
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

    def starts(self, age: int) -> float:
        """From which idle time on, in seconds, something is in the age bucket after `age`."""
        return float(self._ends[age]) if age < _AGES else math.inf

    def _refresh(self) -> None:
        self._fresh = 0
        while self._idle.sum() > _MEMORY_POOLS * self._capacity:
            self._idle /= 2
            self._hit /= 2
        chances = self._chances()
        survivors = 1.0 - np.cumsum(chances, axis=1) + chances
        # Within a bucket a hit comes, on average, in its middle.
        held = np.maximum(survivors - chances / 2, _LEAST_SURVIVORS) * self._held
        values = np.empty_like(chances)
        for age in range(_AGES + 1):
            gained, paid = np.cumsum(chances[:, age:], axis=1), np.cumsum(held[:, age:], axis=1)
            values[:, age] = (gained / paid).max(axis=1)
        self.values = values.tolist()

    def _chances(self) -> NDArray[np.float64]:
        """Chance that an idle page of a class is asked for at each age: counts, drawn a little to the average.

        Before anything is known, every octave of age is as likely as the next; so value falls with age, and
        the policy is least recently used.
        """
        prior = max(1.0, self._idle.sum() * _PRIOR_SHARE)
        blank = np.full(_AGES + 1, _PRIOR_CHANCE / (_AGES + 1))
        average = (self._hit.sum(axis=0) + prior * blank) / (self._idle.sum() + prior)
        chances: NDArray[np.float64] = (self._hit + prior * average) / (self._idle + prior)[:, None]
        return chances


@dataclass(frozen=True, slots=True)
class _Shelf:
    """Leaves that are worth the same."""

    hits_class: int
    age: int
    cost: int


class DensityOrder(Generic[LeafT]):
    """Files leaves by class, age and recompute cost; a leaf that grows older moves on when room is needed.

    The value of a shelf is the expected hits per page and second times what a hit saves: with
    `attention_pages` A, a token at depth d costs 1 + d/A times one at the start. None: all cost the same.
    """

    def __init__(self, capacity: int, attention_pages: float | None = None) -> None:
        self.density = HitDensity(capacity)
        self.now = 0.0
        self._attention_pages = attention_pages
        self._shelves: dict[_Shelf, LeafHeap[LeafT]] = {}
        self._lru = Lru()

    def __len__(self) -> int:
        return sum(len(heap) for heap in self._shelves.values())

    def add(self, leaf: LeafT) -> None:
        shelf = _Shelf(class_of(leaf.hits), age_of(self.now - leaf.idle_since), self._cost(leaf.depth))
        self._put(leaf, shelf)

    def first(self) -> LeafT:
        """Of the leaves of least value, the least recently used. Raises BooksError if there is none."""
        self._move_on()
        if not self._shelves:
            raise BooksError("a leaf is to be evicted and none is evictable")
        return min(self._shelves.items(), key=self._rank)[1].first()

    def began_idle(self, leaf: LeafT, pages: int) -> None:
        self.density.began_idle(leaf.hits, pages)

    def reused(self, leaf: LeafT, pages: int) -> None:
        self.density.reused(leaf.hits, age_of(self.now - leaf.idle_since), pages)

    def check(self) -> None:
        for shelf, heap in self._shelves.items():
            heap.check()
            for leaf in heap:
                if class_of(leaf.hits) != shelf.hits_class:
                    raise BooksError(f"{leaf} lies on the wrong shelf, {shelf}")

    def _rank(self, item: tuple[_Shelf, LeafHeap[LeafT]]) -> SortKey:
        shelf, heap = item
        value = self.density.values[shelf.hits_class][shelf.age] * (1.0 + _DEPTH_STEP * shelf.cost)
        return (value, *heap.first().rank)

    def _cost(self, depth: int) -> int:
        """What recomputing at that depth costs beyond a token at the start, in steps of half of it."""
        return 0 if self._attention_pages is None else round(depth / self._attention_pages / _DEPTH_STEP)

    def _put(self, leaf: LeafT, shelf: _Shelf) -> None:
        heap = self._shelves.get(shelf)
        if heap is None:
            heap = self._shelves[shelf] = LeafHeap(self._lru)
        heap.add(leaf)

    def _move_on(self) -> None:
        """Drop empty shelves; move what has grown older. Within a shelf the least recently used are the oldest."""
        for shelf in list(self._shelves):
            heap = self._shelves[shelf]
            oldest = self.now - self.density.starts(shelf.age)
            while len(heap) and (leaf := heap.first()).idle_since <= oldest:
                heap.remove(leaf)
                self._put(leaf, _Shelf(shelf.hits_class, age_of(self.now - leaf.idle_since), shelf.cost))
            if not len(heap):
                del self._shelves[shelf]
