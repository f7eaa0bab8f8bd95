"""Which leaf gives up its pages first.

A policy is one method that returns a sort key; the order files the evictable leaves under it, incrementally.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, Protocol, TypeAlias, TypeVar

from sapwood.config import EvictionName
from sapwood.errors import BooksError

SortKey: TypeAlias = tuple[float, ...]
"""Compared as tuples are; the smallest is evicted first."""


class Evictable(Protocol):
    """A leaf as policies and the order see it."""

    used: int
    """When a lease last began or ended here, on the index's own counter."""
    rank: SortKey
    """The sort key that the order filed it under."""
    place: int | None
    """Where the order keeps it; None when it is not evictable."""


class EvictionPolicy(Protocol):
    def key(self, leaf: Evictable) -> SortKey: ...


class Lru:
    """Least recently used first."""

    def key(self, leaf: Evictable) -> SortKey:
        return (leaf.used,)


def policy_named(name: EvictionName) -> EvictionPolicy:
    policies: dict[EvictionName, EvictionPolicy] = {"lru": Lru()}
    return policies[name]


LeafT = TypeVar("LeafT", bound=Evictable)


class EvictionOrder(Generic[LeafT]):
    """The evictable leaves as a binary heap in which every leaf knows its place.

    So a leaf is added, removed or popped in O(log leaves) at worst, and nothing outdated is ever left behind:
    no lazy deletion, no rebuild, no growth beyond the leaves.
    """

    def __init__(self, policy: EvictionPolicy) -> None:
        self._policy = policy
        self._heap: list[LeafT] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, leaf: LeafT) -> None:
        leaf.rank = self._policy.key(leaf)
        self._heap.append(leaf)
        self._rise(leaf, len(self._heap) - 1)

    def pop(self) -> LeafT:
        """Take out the leaf with the smallest key. Raises BooksError if there is none."""
        if not self._heap:
            raise BooksError("a leaf is to be evicted and none is evictable")
        leaf = self._heap[0]
        self.remove(leaf)
        return leaf

    def remove(self, leaf: LeafT) -> None:
        """Take out a leaf wherever it is; one that is not evictable is left alone."""
        place = leaf.place
        if place is None:
            return
        leaf.place = None
        last = self._heap.pop()
        if last is leaf:
            return
        if last.rank < leaf.rank:
            self._rise(last, place)
        else:
            self._sink(last, place)

    def check(self, expected: Collection[LeafT]) -> None:
        """Raises BooksError unless exactly the expected leaves are here, each in place and under its key."""
        for place, leaf in enumerate(self._heap):
            if leaf.place != place:
                raise BooksError(f"{leaf} is at place {place} of the eviction order and says {leaf.place}")
            if leaf.rank != self._policy.key(leaf):
                raise BooksError(f"{leaf} is filed under {leaf.rank}, not under {self._policy.key(leaf)}")
            if self._heap[(place - 1) // 2 if place else 0].rank > leaf.rank:
                raise BooksError(f"{leaf} stands below a leaf that is to be evicted after it")
        for leaf in expected:
            if leaf.place is None:
                raise BooksError(f"{leaf} can be evicted and is missing from the eviction order")
        if len(expected) != len(self._heap):
            raise BooksError(
                f"{len(self._heap)} leaves are in the eviction order, {len(expected)} are evictable"
            )

    def _rise(self, leaf: LeafT, place: int) -> None:
        while place > 0:
            above = self._heap[(place - 1) // 2]
            if above.rank <= leaf.rank:
                break
            self._put(above, place)
            place = (place - 1) // 2
        self._put(leaf, place)

    def _sink(self, leaf: LeafT, place: int) -> None:
        heap, end = self._heap, len(self._heap)
        while (below := 2 * place + 1) < end:
            if below + 1 < end and heap[below + 1].rank < heap[below].rank:
                below += 1
            if leaf.rank <= heap[below].rank:
                break
            self._put(heap[below], place)
            place = below
        self._put(leaf, place)

    def _put(self, leaf: LeafT, place: int) -> None:
        self._heap[place] = leaf
        leaf.place = place
