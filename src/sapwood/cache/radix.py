"""The radix tree: one tree per namespace, edges are runs of tokens at page granularity.

Looking up changes nothing. An edge is split when a lease begins or commits inside it, and joined again when a
lease ends and nothing needs the split any more. Nothing recurses: a tree may be as deep as a prompt is long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sapwood.cache.check import Claims, check_tree
from sapwood.cache.evict import EvictionOrder, EvictionPolicy
from sapwood.cache.index import Cursor
from sapwood.cache.keys import Namespace, PageIds, Tokens, common_prefix, page_key
from sapwood.cache.node import Node, Root
from sapwood.cache.runs import IntRun
from sapwood.errors import BooksError


@dataclass(frozen=True, slots=True)
class Path:
    """What a walk down the tree found."""

    nodes: Sequence[Node]
    """From the first below the start; all match to their end, except perhaps the last."""
    pages: int
    """Pages matched in all."""
    inside: int | None
    """Pages matched of the last node, if the match ends inside it."""


class RadixCursor:
    """Stands at the end of `node`, never inside; holds one pin on every node from there up to the root."""

    __slots__ = ("_index", "node", "pages", "root")

    def __init__(self, index: RadixIndex, root: Root) -> None:
        self._index = index
        self.root = root
        self.node: Node = root
        self.pages = 0

    def path(self) -> list[Node]:
        """The pinned nodes below the root, the deepest first."""
        nodes, node = [], self.node
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes

    def table(self) -> PageIds:
        return _concatenated([node.pages.view for node in reversed(self.path())])

    def extend(self, tokens: Tokens, pages: PageIds) -> PageIds:
        return self._index.extend(self, tokens, pages)

    def unpin(self) -> PageIds:
        return self._index.unpin(self)


class RadixIndex:
    """Implements PrefixIndex; `touched` counts the nodes that evictions looked at, for tests of cost."""

    def __init__(self, page_size: int, policy: EvictionPolicy) -> None:
        self.page_size = page_size
        self.pages = 0
        self.leased = 0
        self.touched = 0
        self.order: EvictionOrder[Node] = EvictionOrder(policy)
        self.roots: dict[Namespace, Root] = {}
        self._flushed: set[Root] = set()
        self._policy = policy
        self._now = 0

    def match(self, namespace: Namespace, tokens: Tokens) -> int:
        root = self.roots.get(namespace)
        return 0 if root is None else self._walk(root, tokens).pages

    def unpinned(self, namespace: Namespace, tokens: Tokens) -> int:
        root = self.roots.get(namespace)
        path = Path((), 0, None) if root is None else self._walk(root, tokens)
        count = sum(node.pages.size for node in path.nodes if node.pins == 0)
        if path.inside is not None and path.nodes[-1].pins == 0:
            # The rest of that edge is not part of the match.
            count -= path.nodes[-1].pages.size - path.inside
        return count

    def pin(self, namespace: Namespace, tokens: Tokens) -> Cursor:
        root = self.roots.get(namespace)
        if root is None:
            root = self.roots[namespace] = Root(namespace, np.empty(0, dtype=np.int32))
        root.pins += 1
        self._now += 1
        cursor = RadixCursor(self, root)
        self._advance(cursor, self._walk(root, tokens))
        return cursor

    def extend(self, cursor: RadixCursor, tokens: Tokens, pages: PageIds) -> PageIds:
        """Walk down what is there already, then store the rest below it. See Cursor.extend."""
        if cursor.root.flushed:
            return pages[:0]
        kept = []
        if cursor.node.children:
            path = self._walk(cursor.node, tokens)
            kept = self._advance(cursor, path)
            tokens, pages = tokens[path.pages * self.page_size :], pages[path.pages :]
        if len(pages):
            self._store(cursor, tokens, pages)
        return _concatenated([*kept, pages]) if kept else pages

    def unpin(self, cursor: RadixCursor) -> PageIds:
        self._now += 1
        path = cursor.path()
        for node in path:
            node.pins -= 1
            node.used = self._now
            if node.pins == 0:
                self.leased -= node.pages.size
        cursor.root.pins -= 1
        end, cursor.node, cursor.pages = cursor.node, cursor.root, 0
        if cursor.root.flushed:
            return self._free_unpinned(path, cursor.root)
        self._undo_splits(end)
        self._offer(end)
        return _concatenated([])

    def evict(self, count: int) -> PageIds:
        freed, missing = [], count
        while missing > 0:
            leaf = self.order.pop()
            self.touched += 1
            freed.append(leaf.trim(missing))
            missing -= len(freed[-1])
            if leaf.pages.size:
                self.order.add(leaf)
            else:
                self._unlink(leaf)
        self.pages -= count
        return _concatenated(freed)

    def flush(self) -> PageIds:
        freed = []
        for root in self.roots.values():
            root.flushed = True
            for node in list(root.subtree()):
                if node.pins == 0 and node.parent is not None:
                    freed.append(node.pages.view)
                    del node.parent.children[node.key]
        self._flushed.update(root for root in self.roots.values() if root.pins)
        self.roots = {}
        self.order = EvictionOrder(self._policy)
        self.pages = self.leased
        return _concatenated(freed)

    def check(self, cursors: Iterable[Cursor], claims: Claims) -> None:
        own = [cursor for cursor in cursors if isinstance(cursor, RadixCursor)]
        found = check_tree([*self.roots.values(), *self._flushed], own, self.page_size, claims)
        for name, says, is_so in (("pages", self.pages, found.pages), ("leased", self.leased, found.leased)):
            if says != is_so:
                raise BooksError(f"the tree says {name} = {says}; a recount gives {is_so}")
        self.order.check(found.evictable)

    def _walk(self, start: Node, tokens: Tokens) -> Path:
        size, end = self.page_size, len(tokens) - self.page_size
        nodes: list[Node] = []
        node, at = start, 0
        while at <= end:
            child = node.children.get(page_key(tokens, at, size))
            if child is None:
                break
            shared = common_prefix(child.tokens.view, tokens[at:]) // size
            nodes.append(child)
            at += shared * size
            if shared < child.pages.size:
                return Path(nodes, at // size, shared)
            node = child
        return Path(nodes, at // size, None)

    def _advance(self, cursor: RadixCursor, path: Path) -> list[PageIds]:
        """Pin a path that starts where the cursor stands, splitting its last edge if it ends inside."""
        nodes = list(path.nodes)
        if path.inside is not None:
            nodes[-1] = nodes[-1].split(path.inside)
        for node in nodes:
            self._pin(node)
            cursor.node = node
        cursor.pages += path.pages
        return [node.pages.view for node in nodes]

    def _pin(self, node: Node) -> None:
        if node.pins == 0:
            self.leased += node.pages.size
            self.order.remove(node)
        node.pins += 1
        node.used = self._now

    def _store(self, cursor: RadixCursor, tokens: Tokens, pages: PageIds) -> None:
        node = cursor.node
        if node.parent is not None and node.pins == 1 and not node.children:
            node.append(tokens, pages)  # only this lease reads the leaf, so its edge may grow under it
        else:
            child = Node(node, page_key(tokens, 0, self.page_size), IntRun(tokens), IntRun(pages))
            child.pins, child.used = 1, self._now
            node.children[child.key] = cursor.node = child
        cursor.pages += len(pages)
        self.pages += len(pages)
        self.leased += len(pages)

    def _offer(self, node: Node) -> None:
        """File a node for eviction, or drop a root, if nothing hangs on it any more."""
        if node.pins or node.children:
            return
        if isinstance(node, Root):
            del self.roots[node.namespace]
        else:
            self.order.add(node)

    def _unlink(self, leaf: Node) -> None:
        assert leaf.parent is not None
        del leaf.parent.children[leaf.key]
        self._offer(leaf.parent)

    def _undo_splits(self, end: Node) -> None:
        """Join each chain of nodes on a path just released that neither a branch nor a lease holds apart."""
        node = end
        while node.parent is not None:
            above = []
            top = node.parent
            while top.parent is not None and _is_one_run(top, node):
                above.append(top)
                top = top.parent
            if above:
                node.absorb(above)
            node = top

    def _free_unpinned(self, path: Iterable[Node], root: Root) -> PageIds:
        """After a flush nothing can be found again, so what the last lease leaves is freed at once."""
        gone = [node for node in path if node.pins == 0]
        for node in gone:
            assert node.parent is not None
            del node.parent.children[node.key]
            self.pages -= node.pages.size
        if root.pins == 0:
            self._flushed.discard(root)
        return _concatenated([node.pages.view for node in gone])


def _is_one_run(upper: Node, lower: Node) -> bool:
    # With equal pins and no other child, no lease ends between the two.
    return len(upper.children) == 1 and upper.pins == lower.pins


def _concatenated(parts: Sequence[PageIds]) -> PageIds:
    if not parts:
        return np.empty(0, dtype=np.int32)
    return np.concatenate(parts) if len(parts) > 1 else parts[0].copy()
