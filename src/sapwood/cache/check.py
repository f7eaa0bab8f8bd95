"""Proofs of the books: a full recount of who owns which page and who reads which node. Believes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from sapwood.cache.accounts import Account
from sapwood.cache.keys import PageIds, page_key
from sapwood.cache.node import Node, Root
from sapwood.cache.runs import SLACK
from sapwood.errors import BooksError

FEW = 32
"""Pages that are claimed one by one as fast."""


class Claims:
    """Every page is claimed by exactly one owner."""

    def __init__(self, capacity: int) -> None:
        self._owner_of = np.zeros(capacity, dtype=np.int64)
        self._owners: list[object] = ["nobody"]

    def claim(self, pages: PageIds, owner: object) -> None:
        """Raises BooksError if a page is unknown or has an owner already; names page and owners."""
        self._owners.append(owner)
        if len(pages) > FEW and self._all_free(pages):
            self._owner_of[pages] = len(self._owners) - 1
            return
        for page in pages.tolist():
            if not 0 <= page < len(self._owner_of):
                raise BooksError(f"page {page} of {owner} is not one of {len(self._owner_of)}")
            if other := self._owner_of[page]:
                raise BooksError(f"page {page} belongs to {self._owners[other]} and to {owner}")
            self._owner_of[page] = len(self._owners) - 1

    def _all_free(self, pages: PageIds) -> bool:
        """Whether the pages are known, all different and nobody's: what `claim` finds one by one, at once."""
        if int(pages.min()) < 0 or int(pages.max()) >= len(self._owner_of) or self._owner_of[pages].any():
            return False
        places = np.arange(1, len(pages) + 1)
        self._owner_of[pages] = places
        # Of a page that is there twice, the last place stays.
        different = bool((self._owner_of[pages] == places).all())
        self._owner_of[pages] = 0
        return different

    def settle(self) -> None:
        """Raises BooksError if a page has no owner."""
        lost = np.flatnonzero(self._owner_of == 0)
        if len(lost):
            raise BooksError(f"page {lost[0]} belongs to nobody, and {len(lost) - 1} more do")


class NodeCursor(Protocol):
    @property
    def root(self) -> Root: ...
    @property
    def pages(self) -> int: ...
    def path(self) -> list[Node]: ...


@dataclass(slots=True)
class TreeCount:
    """What a recount of the tree gave."""

    pages: int = 0
    leased: int = 0
    pages_of: Counter[Account] = field(default_factory=Counter)
    leased_of: Counter[Account] = field(default_factory=Counter)
    evictable: list[Node] = field(default_factory=list)
    """Unpinned nodes with pages, without any below them, that can still be found."""
    ghosts: list[Node] = field(default_factory=list)
    """Nodes without pages."""


def check_tree(
    roots: Iterable[Root], cursors: Sequence[NodeCursor], page_size: int, claims: Claims
) -> TreeCount:
    """Walk all trees, claim their pages, compare each node with its neighbours and with the leases."""
    pins = _pins(cursors)
    count = TreeCount()
    for root in roots:
        for node in root.subtree():
            if node.pins != pins.pop(id(node), 0):
                raise BooksError(f"{node} has not as many pins as leases go through it")
            if node is root:
                _require(root.pins > 0 or bool(root.children), root, "is kept for nothing")
                continue
            _check_node(node, page_size)
            _require(node.account is root.account, node, "has another account than its root")
            claims.claim(node.pages.view, node)
            _count(node, root, count)
    _require(not pins, "a lease", "reads a node that is in no tree")
    return count


def _pins(cursors: Sequence[NodeCursor]) -> Counter[int]:
    pins: Counter[int] = Counter()
    for cursor in cursors:
        path = cursor.path()
        pins.update(id(node) for node in path)
        pins[id(cursor.root)] += 1
        length = sum(node.pages.size for node in path)
        _require(length == cursor.pages, "a lease", f"counts {cursor.pages} pages of a path of {length}")
    return pins


def _check_node(node: Node, page_size: int) -> None:
    parent = node.parent
    assert parent is not None
    _require(node.tokens.size > 0, node, "is empty")
    _require(node.tokens.size % page_size == 0, node, f"holds {node.tokens.size} tokens")
    _require(node.pages.size <= node.length, node, f"has pages for more than its {node.tokens.size} tokens")
    _require(node.pins == 0 or node.pages.size == node.length, node, "is read and lacks pages")
    _require(node.key == page_key(node.tokens.view, 0, page_size), node, "has the key of other tokens")
    _require(
        parent.children.get(node.key) is node, node, "is not the child that its parent files under its key"
    )
    _require(node.start == parent.start + parent.length, node, f"says it starts at page {node.start}")
    for run in (node.tokens, node.pages):
        _require(run.capacity <= 2 * run.size + SLACK, node, f"keeps {run.capacity} elements for {run.size}")
    living = sum(not child.is_ghost for child in node.children.values())
    _require(node.living == living, node, f"counts {node.living} living children; a recount gives {living}")
    _require(not living or node.pages.size == node.length, node, "lacks pages and has some below it")


def _count(node: Node, root: Root, count: TreeCount) -> None:
    count.pages += node.pages.size
    if node.account is not None:
        count.pages_of[node.account] += node.pages.size
        count.leased_of[node.account] += node.pages.size if node.pins else 0
    if node.is_ghost:
        count.ghosts.append(node)
        return
    if node.pins:
        count.leased += node.pages.size
        return
    _require(not root.flushed, node, "is flushed, unread and still there")
    if not node.living:
        count.evictable.append(node)


def _require(holds: bool, who: object, wrong: str) -> None:
    if not holds:
        raise BooksError(f"{who} {wrong}")
