"""Which leaf gives up its pages first: the policies that are one method, a sort key.

The orders are those of SGLang's policies of the same names. How leaves are filed under the keys is
`sorted_leaves`; the default policy, whose values change with time, is `hit_density`.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from sapwood.cache.retention import Retention
from sapwood.cache.sorted_leaves import Filed, SortKey

_PROTECTED_HITS = 2


class Evictable(Filed, Protocol):
    """A leaf as policies and orders see it. Lookups change none of this."""

    created: int
    """When the lease that committed its pages began, on the index's own counter."""
    used: int
    """When a lease last began or ended here, on the same counter."""
    hits: int
    """Leases that have read or filled it, from the first one on."""
    idle_since: float
    """When the last lease on it ended, in seconds of the caller's clock."""
    retention: Retention | None
    """What a request asked for."""

    @property
    def depth(self) -> int:
        """Pages from the root to its end."""
        ...


LeafT = TypeVar("LeafT", bound=Evictable)


class EvictionPolicy(Protocol):
    def key(self, leaf: Evictable) -> SortKey: ...


class Lru:
    """Least recently used first."""

    def key(self, leaf: Evictable) -> SortKey:
        return (leaf.used,)


class Mru:
    """Most recently used first."""

    def key(self, leaf: Evictable) -> SortKey:
        return (-leaf.used,)


class Lfu:
    """Least often used first, among equals the least recently used."""

    def key(self, leaf: Evictable) -> SortKey:
        return (leaf.hits, leaf.used)


class Fifo:
    """First created, first out."""

    def key(self, leaf: Evictable) -> SortKey:
        return (leaf.created,)


class Filo:
    """First created, last out."""

    def key(self, leaf: Evictable) -> SortKey:
        return (-leaf.created,)


class Slru:
    """Two segments: what was used once goes before what was used twice; least recently used first in each."""

    def __init__(self, protected_hits: int = _PROTECTED_HITS) -> None:
        self._protected_hits = protected_hits

    def key(self, leaf: Evictable) -> SortKey:
        return (leaf.hits >= self._protected_hits, leaf.used)


def priority_of(leaf: Evictable) -> int:
    return 0 if leaf.retention is None else leaf.retention.priority


class Priority:
    """Lowest retention priority first, among equals the least recently used.

    Every policy lets go of what nobody asked to retain first (`retention`), so this is least recently used
    with the priority as part of the key.
    """

    def key(self, leaf: Evictable) -> SortKey:
        return (priority_of(leaf), leaf.used)
