"""The radix tree (RadixAttention: Zheng et al., "SGLang", NeurIPS 2024, section 3): one tree per namespace.

Edges are runs of tokens at page granularity. Looking up changes nothing. An edge is split when a lease begins
or commits inside it, and joined again when a lease ends and nothing needs the split any more. Evicted stretches
stay as ghosts below what is left, until they are forgotten or filled again. Nothing recurses: a tree may be as
deep as a prompt is long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from sapwood.cache.accounts import Account, Accounts
from sapwood.cache.check import Claims, check_tree
from sapwood.cache.eviction_order import leaf_order
from sapwood.cache.ghosts import Ghosts
from sapwood.cache.index import Cursor, Trace
from sapwood.cache.keys import Namespace, PageIds, Tokens, common_prefix, concatenated, page_key
from sapwood.cache.node import Node, Root
from sapwood.cache.retention import Retention, stronger
from sapwood.cache.runs import IntRun
from sapwood.cache.tenant_order import TenantOrder
from sapwood.cache.walk import Path, continuation, trace, walk
from sapwood.config import CacheConfig
from sapwood.errors import BooksError


class RadixCursor:
    """Stands at the end of `node`, never inside; holds one pin on every node from there up to the root."""

    __slots__ = ("_index", "began", "node", "pages", "root")

    def __init__(self, index: RadixIndex, root: Root, began: int) -> None:
        self._index = index
        self.began = began
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
        return concatenated([node.pages.view for node in reversed(self.path())])

    def extend(self, tokens: Tokens, pages: PageIds) -> PageIds:
        return self._index.extend(self, tokens, pages)

    def retain(self, start: int, end: int, retention: Retention) -> None:
        self._index.retain(self, start, end, retention)

    def unpin(self) -> PageIds:
        return self._index.unpin(self)


class RadixIndex:
    """Implements PrefixIndex; `touched` counts the nodes that evictions looked at, for tests of cost."""

    def __init__(self, capacity: int, config: CacheConfig, accounts: Accounts | None = None) -> None:
        self.page_size = config.page_size
        self.pages = 0
        self.leased = 0
        self.touched = 0
        self.roots: dict[Namespace, Root] = {}
        self.ghosts = Ghosts(capacity, config.page_size)
        self.order = TenantOrder(leaf_order(config, capacity))
        self._accounts = accounts or Accounts()
        self._trimmed: Node | None = None
        self._flushed: set[Root] = set()
        self._clock = 0.0
        self._count = 0

    def advance(self, now: float) -> None:
        self._clock = now
        self.order.advance(now)

    def match(self, namespace: Namespace, tokens: Tokens) -> int:
        root = self.roots.get(namespace)
        return 0 if root is None else walk(root, tokens).pages

    def trace(self, namespace: Namespace, tokens: Tokens) -> Trace:
        root = self.roots.get(namespace)
        if root is None:
            return Trace(0, 0, branches=False, evicted_at=None)
        return trace(root, tokens)

    def continuation(self, namespace: Namespace, tokens: Tokens, limit: int) -> Tokens:
        root = self.roots.get(namespace)
        return tokens[:0] if root is None else continuation(root, tokens, limit)

    def unpinned(self, namespace: Namespace, tokens: Tokens) -> int:
        root = self.roots.get(namespace)
        path = Path((), 0, None) if root is None else walk(root, tokens)
        count = sum(node.pages.size for node in path.nodes if node.pins == 0)
        if path.inside is not None and path.nodes[-1].pins == 0:
            # The rest of that edge is not part of the match.
            count -= path.nodes[-1].pages.size - path.inside
        return count

    def pin(self, namespace: Namespace, tokens: Tokens) -> Cursor:
        root = self.roots.get(namespace)
        if root is None:
            empty, account = np.empty(0, dtype=np.int32), self._accounts.of(namespace)
            root = self.roots[namespace] = Root(namespace, empty, self.page_size, account)
        root.pins += 1
        self._count += 1
        cursor = RadixCursor(self, root, self._count)
        path = walk(root, tokens)
        self._advance(cursor, path)
        if cursor.node.children:
            self._recall(cursor.node, tokens[path.pages * self.page_size :])
            self._forget_surplus()
        return cursor

    def extend(self, cursor: RadixCursor, tokens: Tokens, pages: PageIds) -> PageIds:
        """Walk down what is there already, fill the ghosts that follow, store the rest below. See Cursor.extend."""
        if cursor.root.flushed:
            return pages[:0]
        children = cursor.node.children
        if not children or page_key(tokens, 0, self.page_size) not in children:
            self._store(cursor, tokens, pages)
            return pages
        kept: list[PageIds] = []
        if cursor.node.living:
            path = walk(cursor.node, tokens)
            kept = [node.pages.view for node in self._advance(cursor, path)]
            tokens, pages = tokens[path.pages * self.page_size :], pages[path.pages :]
        rest = pages
        if cursor.node.children:
            filled = self._fill_ghosts(cursor, tokens, pages)
            tokens, rest = tokens[filled * self.page_size :], pages[filled:]
            self._forget_surplus()
        if len(rest):
            self._store(cursor, tokens, rest)
        return concatenated([*kept, pages]) if kept else pages

    def retain(self, cursor: RadixCursor, start: int, end: int, retention: Retention) -> None:
        """Ask for pages start .. end-1 of the cursor's path. See Cursor.retain."""
        if not retention.holds(self._clock):
            return
        for node in cursor.path():
            first, last = max(start, node.start), min(end, node.depth)
            if first >= last:
                continue
            if first > node.start:
                self._split(node, first - node.start)
            asked = self._split(node, last - node.start) if last < node.depth else node
            asked.retention = stronger(retention, self._still_asked(asked))

    def unpin(self, cursor: RadixCursor) -> PageIds:
        self._count += 1
        path = cursor.path()
        for node in path:
            node.pins -= 1
            node.used = self._count
            if node.pins == 0:
                self._count_leased(node, -node.pages.size)
                node.idle_since = self._clock
                self.order.began_idle(node, node.pages.size)
        cursor.root.pins -= 1
        end, cursor.node, cursor.pages = cursor.node, cursor.root, 0
        if cursor.root.flushed:
            return self._free_unpinned(path, cursor.root)
        self._undo_splits(end)
        self._offer(end)
        self._forget_surplus()
        return concatenated([])

    def evict(self, count: int, account: Account | None = None) -> PageIds:
        freed, missing = [], count
        while missing > 0:
            leaf = self.order.first() if account is None else self.order.first_of(account)
            self.touched += 1
            if leaf is not self._trimmed:
                self._cut_ghost_off()
                self._trimmed = leaf
            freed.append(leaf.trim(missing))
            leaf.evicted_at = self._clock
            missing -= len(freed[-1])
            self._count_pages(leaf, -len(freed[-1]))
            if leaf.is_ghost:
                self._became_ghost(leaf)
        self._forget_surplus()
        return freed[0] if len(freed) == 1 else concatenated(freed)

    def flush(self) -> PageIds:
        freed = []
        for root in self.roots.values():
            root.flushed = True
            for node in list(root.subtree()):
                if node.pins == 0 and node.parent is not None:
                    freed.append(node.pages.view)
                    self._count_pages(node, -node.pages.size)
                    self._unlink(node)
                    if node.is_ghost:
                        self.ghosts.remove(node)
                    else:
                        self.order.remove(node)
        self._flushed.update(root for root in self.roots.values() if root.pins)
        self.roots = {}
        self._trimmed = None
        return concatenated(freed)

    def check(self, cursors: Iterable[Cursor], claims: Claims) -> None:
        own = [cursor for cursor in cursors if isinstance(cursor, RadixCursor)]
        found = check_tree([*self.roots.values(), *self._flushed], own, self.page_size, claims)
        for name, says, is_so in (("pages", self.pages, found.pages), ("leased", self.leased, found.leased)):
            if says != is_so:
                raise BooksError(f"the tree says {name} = {says}; a recount gives {is_so}")
        self._accounts.check_held(found.pages_of, found.leased_of)
        self.order.check(found.evictable)
        self.ghosts.check(found.ghosts)

    # ---- pinning -------------------------------------------------------------------------------------------

    def _advance(self, cursor: RadixCursor, path: Path) -> list[Node]:
        """Pin a path that starts where the cursor stands, splitting its last edge if it ends inside."""
        nodes = list(path.nodes)
        if path.inside is not None:
            nodes[-1] = self._split(nodes[-1], path.inside)
        for node in nodes:
            self._pin(node)
            cursor.node = node
        cursor.pages += path.pages
        return nodes

    def _pin(self, node: Node) -> None:
        if node.pins == 0:
            self._count_leased(node, node.pages.size)
            if node.filed_in is not None:
                self.order.remove(node)
            self.order.reused(node, node.pages.size)
        node.hits += 1
        node.pins += 1
        node.used = self._count

    def _split(self, node: Node, count: int) -> Node:
        """Cut a node in two, see Node.split; what has no pages left is a ghost."""
        was_ghost = node.is_ghost
        upper = node.split(count)
        if was_ghost:
            self.ghosts.added_by_split()
        elif node.is_ghost:
            self.order.remove(node)
            self._file_ghost(node)
        return upper

    # ---- ghosts --------------------------------------------------------------------------------------------

    def _recall(self, node: Node, tokens: Tokens) -> None:
        """Ghosts that a new lease may fill are not to be forgotten by what is evicted for it."""
        for ghost in self._ghosts_along(node, tokens):
            ghost.used = self._count
            if not ghost.children:
                self.ghosts.keep(ghost)
                self.ghosts.offer(ghost)

    def _ghosts_along(self, node: Node, tokens: Tokens) -> Iterator[Node]:
        """The ghosts below a node that these tokens continue into, the last one split where they leave it."""
        size = self.page_size
        while len(tokens) >= size:
            ghost = node.children.get(page_key(tokens, 0, size))
            if ghost is None or not ghost.is_ghost:
                return
            shared = common_prefix(ghost.tokens.view, tokens) // size
            node = ghost if shared == ghost.length else self._split(ghost, shared)
            yield node
            tokens = tokens[shared * size :]

    def _fill_ghosts(self, cursor: RadixCursor, tokens: Tokens, pages: PageIds) -> int:
        """Give the ghosts that follow their pages back, so that the past of a prefix outlives its KV.

        Returns how many pages they took.
        """
        filled = 0
        for ghost in self._ghosts_along(cursor.node, tokens):
            self.ghosts.remove(ghost)
            self.order.reused(ghost, ghost.length)
            ghost.pages = IntRun(pages[filled : filled + ghost.length])
            ghost.hits += 1
            ghost.pins, ghost.created, ghost.used = 1, cursor.began, self._count
            assert ghost.parent is not None
            ghost.parent.living += 1
            filled += ghost.length
            cursor.node = ghost
        self._took(cursor, filled)
        return filled

    def _cut_ghost_off(self) -> None:
        """Another leaf is trimmed now: what was taken off the last one becomes a ghost that is counted."""
        node, self._trimmed = self._trimmed, None
        if node is not None and 0 < node.pages.size < node.length:
            self._offer(self._split(node, node.pages.size))

    def _became_ghost(self, leaf: Node) -> None:
        self._trimmed = None
        self.order.remove(leaf)
        assert leaf.parent is not None
        leaf.parent.living -= 1
        self._file_ghost(leaf)
        self._offer(leaf.parent)

    def _file_ghost(self, node: Node) -> None:
        self.ghosts.add(node)
        if not node.children:
            self.ghosts.offer(node)

    def _forget_surplus(self) -> None:
        while self.ghosts.over:
            ghost = self.ghosts.first()
            self.ghosts.remove(ghost)
            parent = self._unlink(ghost)
            if not parent.living:
                self._offer(parent)

    # ---- storing and letting go ----------------------------------------------------------------------------

    def _store(self, cursor: RadixCursor, tokens: Tokens, pages: PageIds) -> None:
        node = cursor.node
        # Only this lease has ever used such a leaf, so its edge may grow under it.
        is_own = node.pins == node.hits == 1 and not node.children and node.parent is not None
        if is_own and node.retention is None:
            node.append(tokens, pages)
        else:
            child = Node(
                node, page_key(tokens, 0, self.page_size), IntRun(tokens), IntRun(pages), self.page_size
            )
            child.pins, child.created, child.used = 1, cursor.began, self._count
            node.children[child.key] = cursor.node = child
            node.living += 1
        self._took(cursor, len(pages))

    def _took(self, cursor: RadixCursor, count: int) -> None:
        cursor.pages += count
        self._count_pages(cursor.root, count)
        self._count_leased(cursor.root, count)

    def _count_pages(self, node: Node, change: int) -> None:
        self.pages += change
        if node.account is not None:
            node.account.pages += change

    def _count_leased(self, node: Node, change: int) -> None:
        self.leased += change
        if node.account is not None:
            node.account.leased += change

    def _offer(self, node: Node) -> None:
        """File a node for eviction or for being forgotten, or drop a root, if nothing hangs on it any more."""
        if node.pins or node.living:
            return
        if isinstance(node, Root):
            if not node.children:
                del self.roots[node.namespace]
        elif not node.is_ghost:
            if node.filed_in is None:
                self.order.add(node)
        elif not node.children:
            self.ghosts.offer(node)

    def _unlink(self, node: Node) -> Node:
        """Take a node out of its parent, which is returned."""
        assert node.parent is not None
        del node.parent.children[node.key]
        if not node.is_ghost:
            node.parent.living -= 1
        return node.parent

    def _still_asked(self, node: Node) -> Retention | None:
        return node.retention if node.retention is not None and node.retention.holds(self._clock) else None

    def _undo_splits(self, end: Node) -> None:
        """Join each chain of nodes on a path just released that neither a branch nor a lease holds apart."""
        node = end
        while node.parent is not None:
            above = []
            top = node.parent
            while top.parent is not None and self._is_one_run(top, node):
                above.append(top)
                top = top.parent
            if above:
                node.absorb(above)
            node = top

    def _is_one_run(self, upper: Node, lower: Node) -> bool:
        # With equal pins and no other child, no lease ends between the two.
        return len(upper.children) == 1 and upper.pins == lower.pins and self.order.alike(upper, lower)

    def _free_unpinned(self, path: Iterable[Node], root: Root) -> PageIds:
        """After a flush nothing can be found again, so what the last lease leaves is freed at once."""
        gone = [node for node in path if node.pins == 0]
        for node in gone:
            self._unlink(node)
            self._count_pages(node, -node.pages.size)
        if root.pins == 0:
            self._flushed.discard(root)
        return concatenated([node.pages.view for node in gone])
