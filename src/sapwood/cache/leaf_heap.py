"""Leaves filed under a sort key, so that the first is at hand and any can be taken out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from sapwood.cache.evict import Evictable, EvictionPolicy
from sapwood.errors import BooksError

LeafT = TypeVar("LeafT", bound=Evictable)


class LeafHeap(Generic[LeafT]):
    """A binary heap in which every leaf knows its place, and the heap that it is in.

    So a leaf is added or removed in O(log leaves) at worst, and nothing outdated is ever left behind: no lazy
    deletion, no rebuild, no growth beyond the leaves. A leaf is in one heap at most.
    """

    __slots__ = ("_heap", "_policy")

    def __init__(self, policy: EvictionPolicy) -> None:
        self._policy = policy
        self._heap: list[LeafT] = []

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[LeafT]:
        return iter(self._heap)

    def add(self, leaf: LeafT) -> None:
        leaf.rank = self._policy.key(leaf)
        leaf.heap = self
        self._heap.append(leaf)
        self._rise(leaf, len(self._heap) - 1)

    def first(self) -> LeafT:
        """The leaf with the smallest key; it stays. Raises BooksError if there is none."""
        if not self._heap:
            raise BooksError("a leaf is to be evicted and none is evictable")
        return self._heap[0]

    def remove(self, leaf: LeafT) -> None:
        """Take out a leaf that is here, wherever it is."""
        place = leaf.place
        leaf.heap = None
        last = self._heap.pop()
        if last is leaf:
            return
        if last.rank < leaf.rank:
            self._rise(last, place)
        else:
            self._sink(last, place)

    def check(self) -> None:
        """Raises BooksError unless each leaf is in place and under its key."""
        for place, leaf in enumerate(self._heap):
            if leaf.heap is not self or leaf.place != place:
                raise BooksError(f"{leaf} is at place {place} of a heap and says otherwise ({leaf.place})")
            if leaf.rank != self._policy.key(leaf):
                raise BooksError(f"{leaf} is filed under {leaf.rank}, not under {self._policy.key(leaf)}")
            if self._heap[(place - 1) // 2 if place else 0].rank > leaf.rank:
                raise BooksError(f"{leaf} stands below a leaf that is to be evicted after it")

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
