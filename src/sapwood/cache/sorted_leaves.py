"""Leaves filed under a sort key, so that the first is at hand and any can be taken out."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from sapwood.errors import BooksError

SortKey: TypeAlias = tuple[float, ...]
"""Compared as tuples are; the smallest is evicted first."""

_MOST = 512
"""Leaves of a block; with one more it is cut in two."""


class Filed(Protocol):
    """What can be in a queue. It belongs to one at most; only the queue writes these."""

    rank: SortKey
    """The sort key that it is filed under."""
    filed_in: SortedLeaves[Any] | None
    """Where it is filed, if it is."""


FiledT = TypeVar("FiledT", bound=Filed)


class SortedLeaves(Generic[FiledT]):
    """Leaves in order, cut into short blocks; of equal ones the first that came is the first to go.

        ends      [      7      |        19       |   23  ]    the largest key of each block
        ranks     [[ 2, 5, 7 ]  , [ 9, 12, 15, 19 ], [ 23 ]]
        leaves    [[ ·  ·  · ]  , [ ·   ·   ·   · ], [  · ]]

    Two binary searches find a leaf's place, and what moves to make room is a block's pointers: no more in a large
    cache than in a small one. So nothing outdated is ever left behind: no lazy deletion, no rebuild, no growth
    beyond the leaves. As all of it is done by `bisect` and lists, it is several times as fast as a heap in Python.
    """

    __slots__ = ("_ends", "_key", "_leaves", "_ranks")

    def __init__(self, key: Callable[[FiledT], SortKey]) -> None:
        self._key = key
        self._ends: list[SortKey] = []
        self._ranks: list[list[SortKey]] = []
        self._leaves: list[list[FiledT]] = []

    def __len__(self) -> int:
        return sum(map(len, self._leaves))

    def __bool__(self) -> bool:
        return bool(self._leaves)

    def __iter__(self) -> Iterator[FiledT]:
        return chain.from_iterable(self._leaves)

    def add(self, leaf: FiledT) -> None:
        rank = leaf.rank = self._key(leaf)
        leaf.filed_in = self
        block = bisect_right(self._ends, rank)
        if block == len(self._ends):
            self._add_last(leaf)
            return
        ranks = self._ranks[block]
        place = bisect_right(ranks, rank)
        ranks.insert(place, rank)
        self._leaves[block].insert(place, leaf)
        if len(ranks) > _MOST:
            self._halve(block)

    def first(self) -> FiledT:
        """The leaf with the smallest key; it stays. Raises BooksError if there is none."""
        if not self._leaves:
            raise BooksError("a leaf is to be evicted and none is evictable")
        return self._leaves[0][0]

    def remove(self, leaf: FiledT) -> None:
        """Take out a leaf that is here, wherever it is."""
        rank = leaf.rank
        leaf.filed_in = None
        block = bisect_left(self._ends, rank)
        ranks, leaves = self._ranks[block], self._leaves[block]
        place = bisect_left(ranks, rank)
        while leaves[place] is not leaf:  # another of the same key
            place += 1
            if place == len(leaves):
                block, place = block + 1, 0
                ranks, leaves = self._ranks[block], self._leaves[block]
        del ranks[place], leaves[place]
        if not ranks:
            del self._ends[block], self._ranks[block], self._leaves[block]
        elif place == len(ranks):
            self._ends[block] = ranks[-1]

    def check(self) -> None:
        """Raises BooksError unless each leaf is in place and under its key."""
        before: SortKey | None = None
        for ranks, leaves, end in zip(self._ranks, self._leaves, self._ends, strict=True):
            if not 0 < len(leaves) <= _MOST or ranks[-1] != end:
                raise BooksError(
                    f"a block of {len(leaves)} leaves that ends with {ranks[-1:]} is kept under {end}"
                )
            for rank, leaf in zip(ranks, leaves, strict=True):
                self._check(leaf, rank, before)
                before = rank

    def _check(self, leaf: FiledT, rank: SortKey, before: SortKey | None) -> None:
        if leaf.filed_in is not self:
            raise BooksError(f"{leaf} is filed here and says otherwise")
        if not leaf.rank == rank == self._key(leaf):
            raise BooksError(f"{leaf} is filed under {rank}, not under {self._key(leaf)}")
        if before is not None and before > rank:
            raise BooksError(f"{leaf} stands after a leaf that is to be evicted after it")

    def _add_last(self, leaf: FiledT) -> None:
        """It is no smaller than any that is here."""
        if not self._ends or len(self._ranks[-1]) == _MOST:
            self._ends.append(leaf.rank)
            self._ranks.append([leaf.rank])
            self._leaves.append([leaf])
            return
        self._ends[-1] = leaf.rank
        self._ranks[-1].append(leaf.rank)
        self._leaves[-1].append(leaf)

    def _halve(self, block: int) -> None:
        ranks, leaves = self._ranks[block], self._leaves[block]
        half = len(ranks) // 2
        self._ends.insert(block, ranks[half - 1])
        self._ranks[block : block + 1] = [ranks[:half], ranks[half:]]
        self._leaves[block : block + 1] = [leaves[:half], leaves[half:]]
