"""Leaves in the order of the default policy: shelves of leaves that are worth the same, the cheapest shelf first."""

from __future__ import annotations

import heapq
from typing import Any, Generic, NamedTuple

from sapwood.cache.evict import LeafT, Lru
from sapwood.cache.hit_density import HitDensity, age_of, class_of
from sapwood.cache.sorted_leaves import SortedLeaves, SortKey
from sapwood.errors import BooksError

_DEPTH_STEP = 0.5
_TICK = 1.0
"""Seconds after which ages are looked at again; the youngest age is eight times as long."""

_MOST_MOVES = 8
"""Leaves that are moved to an older shelf at once, so that no step pays for a long pause. The others stay a little
longer on a younger shelf, where the oldest go first too."""


class _Label(NamedTuple):
    """What the leaves of a shelf have in common. Several are made and looked up for each request: no dataclass."""

    hits_class: int
    age: int
    cost: int


class _Shelf(SortedLeaves[LeafT]):
    """Leaves that are worth the same, the least recently used first. Shelves are filed too, by their worth."""

    __slots__ = ("filed_in", "label", "rank")

    def __init__(self, label: _Label) -> None:
        super().__init__(Lru().key)
        self.label = label
        self.rank: SortKey = ()
        self.filed_in: SortedLeaves[Any] | None = None


class DensityOrder(Generic[LeafT]):
    """Files leaves by class, age and recompute cost; a leaf that grows older moves on when room is needed.

    The worth of a shelf is the expected hits per page and second (`HitDensity`) times what a hit saves: with
    `attention_pages` A, a token at depth d costs 1 + d/A times one at the start. None: all cost the same.

    All ages are those of one moment, `_settled`, at most a tick ago but for leaves still to be moved: so leaves
    stand in the right order to each other, and an eviction finds the first at hand. It costs some moves and
    their shelves; all shelves are looked at once a tick, and once for each time that the values are learned.
    """

    def __init__(
        self, capacity: int, attention_pages: float | None = None, density: HitDensity | None = None
    ) -> None:
        self._capacity = capacity
        self.density = density or HitDensity(capacity)
        self.now = 0.0
        self._attention_pages = attention_pages
        self._settled = 0.0
        self._aging: list[tuple[int, int, _Shelf[LeafT]]] = []
        """Shelves from which leaves may have to move on, as of `_settled`."""
        self._values = self.density.values
        self._shelves: dict[_Label, _Shelf[LeafT]] = {}
        self._by_worth: SortedLeaves[_Shelf[LeafT]] = SortedLeaves(self._worth)

    def __len__(self) -> int:
        return sum(len(shelf) for shelf in self._shelves.values())

    def __bool__(self) -> bool:
        return bool(self._by_worth)

    def add(self, leaf: LeafT) -> None:
        shelf = self._shelf_for(leaf)
        shelf.add(leaf)
        if shelf.first() is leaf:
            self._refile(shelf)

    def remove(self, leaf: LeafT) -> None:
        shelf = leaf.filed_in
        assert isinstance(shelf, _Shelf)
        was_first = shelf.first() is leaf
        shelf.remove(leaf)
        if was_first:
            self._refile(shelf)

    def first(self) -> LeafT:
        """Of the leaves of least worth, the least recently used. Raises BooksError if there is none."""
        if self.density.values is not self._values:
            self._file_anew()
        if self.now - self._settled >= _TICK:
            self._settled = self.now
            self._aging = [(shelf.first().used, n, shelf) for n, shelf in enumerate(self._shelves.values())]
            heapq.heapify(self._aging)
        self._move_on()
        return self._by_worth.first().first()

    def alike(self, one: LeafT, other: LeafT) -> bool:
        return class_of(one.hits) == class_of(other.hits)

    def began_idle(self, leaf: LeafT, pages: int) -> None:
        self.density.began_idle(leaf.hits, pages)

    def reused(self, leaf: LeafT, pages: int) -> None:
        self.density.reused(leaf.hits, age_of(self.now - leaf.idle_since), pages)

    def again(self) -> DensityOrder[Any]:
        return DensityOrder(self._capacity, self._attention_pages, self.density)

    def check(self) -> None:
        self._by_worth.check()
        for label, shelf in self._shelves.items():
            shelf.check()
            if (shelf.filed_in is self._by_worth) != bool(shelf):
                raise BooksError(f"the shelf {label} of {len(shelf)} leaves is filed wrongly")
            for leaf in shelf:
                # A leaf that was trimmed stays where it is: it is no deeper now, and goes no later.
                own = self._label(leaf)
                if own.hits_class != label.hits_class or own.age < label.age:
                    raise BooksError(f"{leaf} lies on the wrong shelf, {label}")

    def _label(self, leaf: LeafT) -> _Label:
        """As it was at `_settled`; what began to be idle since is young."""
        pages = self._attention_pages
        cost = 0 if pages is None else round(leaf.depth / pages / _DEPTH_STEP)
        return _Label(class_of(leaf.hits), age_of(self._settled - leaf.idle_since), cost)

    def _is_older(self, leaf: LeafT, age: int) -> bool:
        return age_of(self._settled - leaf.idle_since) > age

    def _worth(self, shelf: _Shelf[LeafT]) -> SortKey:
        label = shelf.label
        value = self._values[label.hits_class][label.age] * (1.0 + _DEPTH_STEP * label.cost)
        return (value, *shelf.first().rank)

    def _shelf_for(self, leaf: LeafT) -> _Shelf[LeafT]:
        label = self._label(leaf)
        shelf = self._shelves.get(label)
        if shelf is None:
            shelf = self._shelves[label] = _Shelf(label)
        return shelf

    def _refile(self, shelf: _Shelf[LeafT]) -> None:
        """It has another first leaf; without any it is dropped."""
        if shelf.filed_in is not None:
            shelf.filed_in.remove(shelf)
        if shelf:
            self._by_worth.add(shelf)
        else:
            del self._shelves[shelf.label]

    def _move_on(self) -> None:
        """Move what has grown older, the least recently used first; a shelf has the oldest of its leaves in front."""
        moves = _MOST_MOVES
        while self._aging and moves:
            _, n, shelf = heapq.heappop(self._aging)
            if not shelf or not self._is_older(leaf := shelf.first(), shelf.label.age):
                continue
            self.remove(leaf)
            self.add(leaf)
            moves -= 1
            if shelf:
                heapq.heappush(self._aging, (shelf.first().used, n, shelf))

    def _file_anew(self) -> None:
        """All shelves by the newest values."""
        self._values = self.density.values
        self._by_worth = SortedLeaves(self._worth)
        for shelf in self._shelves.values():
            self._by_worth.add(shelf)
