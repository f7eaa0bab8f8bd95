"""All leaves that could be evicted, in the order in which they go: what nobody asked to retain, then the rest."""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection
from typing import Generic, Protocol

from sapwood.cache.evict import (
    EvictionPolicy,
    Fifo,
    Filo,
    Lfu,
    Lru,
    Mru,
    Priority,
    Slru,
)
from sapwood.cache.hit_density import DensityOrder
from sapwood.cache.leaf_heap import LeafHeap, LeafT
from sapwood.config import CacheConfig, EvictionName
from sapwood.errors import BooksError


class LeafOrder(Protocol[LeafT]):
    """Leaves in the order of one policy."""

    now: float
    """Seconds of the caller's clock; set from outside."""

    def __len__(self) -> int: ...

    def add(self, leaf: LeafT) -> None: ...

    def first(self) -> LeafT:
        """Who goes next; it stays. Raises BooksError if there is none."""
        ...

    def began_idle(self, leaf: LeafT, pages: int) -> None:
        """The last lease on these pages ended."""
        ...

    def reused(self, leaf: LeafT, pages: int) -> None:
        """That many pages of an idle leaf, or of a ghost, are asked for again."""
        ...

    def check(self) -> None: ...


class KeyOrder(LeafHeap[LeafT]):
    """The order of a policy that is a sort key: it learns nothing."""

    __slots__ = ("now",)

    def __init__(self, policy: EvictionPolicy) -> None:
        super().__init__(policy)
        self.now = 0.0

    def began_idle(self, leaf: LeafT, pages: int) -> None:
        pass

    def reused(self, leaf: LeafT, pages: int) -> None:
        pass


class EvictionOrder(Generic[LeafT]):
    """Leaves under a retention that holds go last, the lowest priority first; the policy orders the others."""

    def __init__(self, plain: LeafOrder[LeafT]) -> None:
        self._plain = plain
        self._retained: LeafHeap[LeafT] = LeafHeap(Priority())
        self._ends: list[tuple[float, int, LeafT]] = []
        self._filed_end: dict[LeafT, float] = {}

    def __len__(self) -> int:
        return len(self._plain) + len(self._retained)

    def advance(self, now: float) -> None:
        """Leaves whose retention has ended are ordered like all others from now on."""
        self._plain.now = now
        while self._ends and self._ends[0][0] <= now:
            end, _, leaf = heapq.heappop(self._ends)
            if self._filed_end.get(leaf) == end:
                del self._filed_end[leaf]
            if leaf.heap is self._retained:
                self.remove(leaf)
                self.add(leaf)

    def add(self, leaf: LeafT) -> None:
        retention = leaf.retention
        if retention is not None and not retention.holds(self._plain.now):
            retention = leaf.retention = None
        if retention is None:
            self._plain.add(leaf)
        else:
            self._retained.add(leaf)
            self._file_end(leaf, retention.until)

    def first(self) -> LeafT:
        """Who goes next; it stays. Raises BooksError if there is none."""
        return self._plain.first() if len(self._plain) or not len(self._retained) else self._retained.first()

    def remove(self, leaf: LeafT) -> None:
        """Take out a leaf wherever it is; one that is not evictable is left alone."""
        if leaf.heap is not None:
            leaf.heap.remove(leaf)

    def began_idle(self, leaf: LeafT, pages: int) -> None:
        self._plain.began_idle(leaf, pages)

    def reused(self, leaf: LeafT, pages: int) -> None:
        self._plain.reused(leaf, pages)

    def check(self, expected: Collection[LeafT]) -> None:
        """Raises BooksError unless exactly the expected leaves are here, each in place and under its key."""
        self._plain.check()
        self._retained.check()
        for leaf in expected:
            if leaf.heap is None:
                raise BooksError(f"{leaf} can be evicted and is missing from the eviction order")
        if len(expected) != len(self):
            raise BooksError(f"{len(self)} leaves are in the eviction order, {len(expected)} are evictable")

    def _file_end(self, leaf: LeafT, end: float) -> None:
        # Once for each leaf and end, so that leaves that come and go do not pile up.
        if end < math.inf and self._filed_end.get(leaf) != end:
            self._filed_end[leaf] = end
            heapq.heappush(self._ends, (end, id(leaf), leaf))


def eviction_order(config: CacheConfig, capacity: int) -> EvictionOrder[LeafT]:
    """The order that a configuration names, for a pool of `capacity` pages."""
    if config.eviction_policy == "default":
        attention = config.attention_tokens
        pages = None if attention is None else attention / config.page_size
        return EvictionOrder(DensityOrder(capacity, pages))
    policies: dict[EvictionName, EvictionPolicy] = {
        "lru": Lru(),
        "lfu": Lfu(),
        "fifo": Fifo(),
        "mru": Mru(),
        "filo": Filo(),
        "slru": Slru(),
        "priority": Priority(),
    }
    return EvictionOrder(KeyOrder(policies[config.eviction_policy]))
