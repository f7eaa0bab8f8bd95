"""All leaves that could be evicted, in the order in which they go: what nobody asked to retain, then the rest."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, Generic, Protocol

from sapwood.cache.density_order import DensityOrder
from sapwood.cache.evict import (
    EvictionPolicy,
    Fifo,
    Filo,
    LeafT,
    Lfu,
    Lru,
    Mru,
    Priority,
    Slru,
)
from sapwood.cache.sorted_leaves import SortedLeaves, SortKey
from sapwood.config import CacheConfig, EvictionName
from sapwood.errors import BooksError

_MOST_ENDINGS = 64
"""Retentions that are ended at once, so that no step pays for all that end together. The others end a few steps
later, or as soon as nothing else is left to be evicted."""


class LeafOrder(Protocol[LeafT]):
    """Leaves in the order of one policy."""

    now: float
    """Seconds of the caller's clock; set from outside."""

    def __len__(self) -> int: ...

    def __bool__(self) -> bool: ...

    def add(self, leaf: LeafT) -> None: ...

    def remove(self, leaf: LeafT) -> None:
        """Take out a leaf that is here."""
        ...

    def first(self) -> LeafT:
        """Who goes next; it stays. Raises BooksError if there is none."""
        ...

    def alike(self, one: LeafT, other: LeafT) -> bool:
        """Whether two that were last used by the same lease are worth the same, now and later."""
        ...

    def began_idle(self, leaf: LeafT, pages: int) -> None:
        """The last lease on these pages ended."""
        ...

    def reused(self, leaf: LeafT, pages: int) -> None:
        """That many pages of an idle leaf, or of a ghost, are asked for again."""
        ...

    def again(self) -> LeafOrder[Any]:
        """An empty order of the same policy that knows what this one learns, and learns nothing itself."""
        ...

    def check(self) -> None: ...


class KeyOrder(SortedLeaves[LeafT]):
    """The order of a policy that is a sort key: it learns nothing."""

    __slots__ = ("_policy", "now")

    def __init__(self, policy: EvictionPolicy) -> None:
        super().__init__(policy.key)
        self._policy = policy
        self.now = 0.0

    def alike(self, one: LeafT, other: LeafT) -> bool:
        return self._key(one) == self._key(other)

    def began_idle(self, leaf: LeafT, pages: int) -> None:
        pass

    def reused(self, leaf: LeafT, pages: int) -> None:
        pass

    def again(self) -> LeafOrder[Any]:
        return KeyOrder(self._policy)


class _Expiry(Generic[LeafT]):
    """When the retention of a leaf ends."""

    __slots__ = ("at", "filed_in", "leaf", "rank")

    def __init__(self, leaf: LeafT, at: float) -> None:
        self.leaf = leaf
        self.at = at
        self.rank: SortKey = ()
        self.filed_in: SortedLeaves[Any] | None = None


class EvictionOrder(Generic[LeafT]):
    """Leaves under a retention that holds go last, the lowest priority first; the policy orders the others."""

    def __init__(self, plain: LeafOrder[LeafT]) -> None:
        self._plain = plain
        self._retained: SortedLeaves[LeafT] = SortedLeaves(Priority().key)
        self._expiries: SortedLeaves[_Expiry[LeafT]] = SortedLeaves(
            lambda expiry: (expiry.at, expiry.leaf.used)
        )
        self._expiry_of: dict[LeafT, _Expiry[LeafT]] = {}

    def __len__(self) -> int:
        return len(self._plain) + len(self._retained)

    def advance(self, now: float) -> None:
        """Leaves whose retention has ended are ordered like all others from now on, some of many a little later."""
        self._plain.now = now
        if self._expiries:
            self._end_some()

    def add(self, leaf: LeafT) -> None:
        if leaf.retention is not None and not leaf.retention.holds(self._plain.now):
            leaf.retention = None
        if leaf.retention is None:
            self._plain.add(leaf)
            return
        self._retained.add(leaf)
        if leaf.retention.until < math.inf:
            expiry = self._expiry_of[leaf] = _Expiry(leaf, leaf.retention.until)
            self._expiries.add(expiry)

    def first(self) -> LeafT:
        """Who goes next; it stays. Raises BooksError if there is none."""
        if not self._plain:
            self._end_some()
        return self._plain.first() if self._plain or not self._retained else self._retained.first()

    def remove(self, leaf: LeafT) -> None:
        """Take out a leaf wherever it is; one that is not evictable is left alone."""
        if leaf.filed_in is self._retained:
            self._retained.remove(leaf)
            if leaf in self._expiry_of:
                self._expiries.remove(self._expiry_of.pop(leaf))
        elif leaf.filed_in is not None:
            self._plain.remove(leaf)

    def alike(self, one: LeafT, other: LeafT) -> bool:
        """Whether two that were last used by the same lease would go one after the other, now and later."""
        return one.retention == other.retention and self._plain.alike(one, other)

    def began_idle(self, leaf: LeafT, pages: int) -> None:
        self._plain.began_idle(leaf, pages)

    def reused(self, leaf: LeafT, pages: int) -> None:
        self._plain.reused(leaf, pages)

    def _end_some(self) -> None:
        for _ in range(_MOST_ENDINGS):
            if not self._expiries or (expiry := self._expiries.first()).at > self._plain.now:
                return
            self.remove(expiry.leaf)
            self.add(expiry.leaf)

    def check(self, expected: Collection[LeafT]) -> None:
        """Raises BooksError unless exactly the expected leaves are here, each in place and under its key."""
        self._plain.check()
        self._retained.check()
        self._expiries.check()
        for leaf in expected:
            if leaf.filed_in is None:
                raise BooksError(f"{leaf} can be evicted and is missing from the eviction order")
        if len(expected) != len(self):
            raise BooksError(f"{len(self)} leaves are in the eviction order, {len(expected)} are evictable")
        ending = {leaf for leaf in self._retained if leaf.retention and leaf.retention.until < math.inf}
        if ending != self._expiry_of.keys() or len(ending) != len(self._expiries):
            raise BooksError(
                f"{len(self._expiries)} retentions are to end; {len(ending)} leaves have one that ends"
            )


def leaf_order(config: CacheConfig, capacity: int) -> LeafOrder[LeafT]:
    """The order that a configuration names, for a pool of `capacity` pages."""
    if config.eviction_policy == "default":
        attention = config.attention_tokens
        pages = None if attention is None else attention / config.page_size
        return DensityOrder(capacity, pages)
    policies: dict[EvictionName, EvictionPolicy] = {
        "lru": Lru(),
        "lfu": Lfu(),
        "fifo": Fifo(),
        "mru": Mru(),
        "filo": Filo(),
        "slru": Slru(),
        "priority": Priority(),
    }
    return KeyOrder(policies[config.eviction_policy])
