"""The eviction order of all leaves, and that of each tenant with a quota among its own."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sapwood.cache.accounts import Account
from sapwood.cache.eviction_order import EvictionOrder, LeafOrder
from sapwood.cache.node import Node
from sapwood.cache.retention import Retention
from sapwood.cache.sorted_leaves import SortedLeaves, SortKey
from sapwood.errors import BooksError


class _Entry:
    """A leaf as it is filed a second time, for a leaf is in one order at most. Filed, it changes in its depth alone."""

    __slots__ = (
        "created",
        "filed_in",
        "hits",
        "idle_since",
        "leaf",
        "rank",
        "retention",
        "used",
    )

    def __init__(self, leaf: Node) -> None:
        self.leaf = leaf
        self.created, self.used, self.hits = leaf.created, leaf.used, leaf.hits
        self.idle_since = leaf.idle_since
        self.retention: Retention | None = leaf.retention
        self.rank: SortKey = ()
        self.filed_in: SortedLeaves[Any] | None = None

    def __repr__(self) -> str:
        return f"entry of {self.leaf}"

    @property
    def depth(self) -> int:
        return self.leaf.depth


class TenantOrder(EvictionOrder[Node]):
    """Orders all leaves by one policy, and those of each account by themselves, by the same policy.

    Leaves without an account cost nothing more. What the policy learns it learns once, from all.
    """

    def __init__(self, plain: LeafOrder[Node]) -> None:
        super().__init__(plain)
        self._own: dict[Account, EvictionOrder[_Entry]] = {}
        self._entries: dict[Node, _Entry] = {}

    def add(self, leaf: Node) -> None:
        super().add(leaf)
        account = leaf.account
        if account is None:
            return
        own = self._own.get(account)
        if own is None:
            own = self._own[account] = EvictionOrder(self._plain.again())
        own.advance(self._plain.now)
        entry = self._entries[leaf] = _Entry(leaf)
        own.add(entry)

    def remove(self, leaf: Node) -> None:
        super().remove(leaf)
        if leaf.account is not None and (entry := self._entries.pop(leaf, None)) is not None:
            self._own[leaf.account].remove(entry)

    def first_of(self, account: Account) -> Node:
        """Which of a tenant's leaves goes next; it stays. Raises BooksError if there is none."""
        own = self._own.get(account)
        if own is None:
            raise BooksError(f"a leaf of {account.tenant} is to be evicted and none is evictable")
        own.advance(self._plain.now)
        return own.first().leaf

    def check(self, expected: Collection[Node]) -> None:
        super().check(expected)
        if self._entries.keys() != {leaf for leaf in expected if leaf.account is not None}:
            raise BooksError("the leaves of tenants with a quota are not those that are filed for them")
        for account, own in self._own.items():
            own.check([entry for entry in self._entries.values() if entry.leaf.account is account])
