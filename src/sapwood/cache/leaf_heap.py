"""Leaves filed under a sort key, so that the first is at hand and any can be taken out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from sapwood.errors import BooksError

SortKey: TypeAlias = tuple[float, ...]
"""Compared as tuples are; the smallest is evicted first."""


class Filed(Protocol):
    """What can be in a heap. It belongs to one at most; only the heap writes these."""

    rank: SortKey
    """The sort key that it is filed under."""
    heap: LeafHeap[Any] | None
    """Where it is filed, if it is."""
    place: int
    """Its place there."""


FiledT = TypeVar("FiledT", bound=Filed)


class LeafHeap(Generic[FiledT]):
    """A binary heap in which every leaf knows its place, and the heap that it is in.

    So a leaf is added or removed in O(log leaves) at worst, and nothing outdated is ever left behind: no lazy
    deletion, no rebuild, no growth beyond the leaves.
    """

    __slots__ = ("_key", "_leaves")

    def __init__(self, key: Callable[[FiledT], SortKey]) -> None:
        self._key = key
        self._leaves: list[FiledT] = []

    def __len__(self) -> int:
        return len(self._leaves)

    def __bool__(self) -> bool:
        return bool(self._leaves)

    def __iter__(self) -> Iterator[FiledT]:
        return iter(self._leaves)

    def add(self, leaf: FiledT) -> None:
        leaf.rank = self._key(leaf)
        leaf.heap = self
        self._leaves.append(leaf)
        self._rise(leaf, len(self._leaves) - 1)

    def first(self) -> FiledT:
        """The leaf with the smallest key; it stays. Raises BooksError if there is none."""
        if not self._leaves:
            raise BooksError("a leaf is to be evicted and none is evictable")
        return self._leaves[0]

    def remove(self, leaf: FiledT) -> None:
        """Take out a leaf that is here, wherever it is."""
        place = leaf.place
        leaf.heap = None
        last = self._leaves.pop()
        if last is leaf:
            return
        if last.rank < leaf.rank:
            self._rise(last, place)
        else:
            self._sink(last, place)

    def check(self) -> None:
        """Raises BooksError unless each leaf is in place and under its key."""
        for place, leaf in enumerate(self._leaves):
            if leaf.heap is not self or leaf.place != place:
                raise BooksError(f"{leaf} is at place {place} of a heap and says otherwise ({leaf.place})")
            if leaf.rank != self._key(leaf):
                raise BooksError(f"{leaf} is filed under {leaf.rank}, not under {self._key(leaf)}")
            if self._leaves[(place - 1) // 2 if place else 0].rank > leaf.rank:
                raise BooksError(f"{leaf} stands below a leaf that is to be evicted after it")

    def _rise(self, leaf: FiledT, place: int) -> None:
        leaves, rank = self._leaves, leaf.rank
        while place > 0:
            upper = (place - 1) >> 1
            above = leaves[upper]
            if above.rank <= rank:
                break
            leaves[place] = above
            above.place = place
            place = upper
        leaves[place] = leaf
        leaf.place = place

    def _sink(self, leaf: FiledT, place: int) -> None:
        """To the bottom along the smaller ones, and up from there: it came from the bottom, and mostly stays there."""
        leaves, end = self._leaves, len(self._leaves)
        while (below := 2 * place + 1) < end:
            smaller = leaves[below]
            if below + 1 < end and (right := leaves[below + 1]).rank < smaller.rank:
                smaller, below = right, below + 1
            leaves[place] = smaller
            smaller.place = place
            place = below
        self._rise(leaf, place)
