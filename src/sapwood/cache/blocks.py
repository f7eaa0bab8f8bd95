"""The block-hash index, vLLM's way: full pages in a hash map, unpinned ones in a queue for eviction.

    map          hash over (hash of the page before, tokens of this page) ──▶ block
    free queue   [ next to be evicted … last released ]        only what no lease pins
    ghosts       hash ──▶ when it was evicted

It gives the same answers as the radix tree and evicts the same pages as its LRU. After Kwon et al., "Efficient
Memory Management for Large Language Model Serving with PagedAttention" (2023), and vLLM's automatic prefix caching.

Why no block is evicted before one that follows it: a lease that pins a block pins all before it, so a block is
unpinned no earlier than any that follows it. If a later call unpins it, it comes further back in the queue; if the
same call does, it comes further back too, as a lease is let go from its tail. What follows an unpinned block is
thus unpinned, and nearer to the head. So nothing follows the head, and every cached block can be reached.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

import numpy as np

from sapwood.cache.accounts import Account, Accounts
from sapwood.cache.block import Block, Parent
from sapwood.cache.block_check import check_blocks
from sapwood.cache.block_ghosts import BlockGhosts
from sapwood.cache.block_map import BlockMap
from sapwood.cache.chain import ChainHash, HashFunction, blake2b_128, root_hash
from sapwood.cache.check import Claims
from sapwood.cache.index import Cursor, Trace
from sapwood.cache.keys import Namespace, PageIds, Tokens
from sapwood.cache.lookups import MOST_PAGES, Lookups
from sapwood.cache.retention import Retention
from sapwood.cache.tenant_queue import TenantQueue
from sapwood.errors import BooksError, UsageError

_TOKEN_BYTES = 4


class BlockCursor:
    """Stands behind `end`, a block or the namespace itself; holds one pin on every block from there to the front."""

    __slots__ = ("_index", "end", "epoch", "namespace", "pages")

    def __init__(self, index: BlockIndex, namespace: Namespace, epoch: int) -> None:
        self._index = index
        self.namespace = namespace
        self.epoch = epoch
        """Flushes before this cursor began."""
        self.end: Parent = namespace
        self.pages = 0

    def path(self) -> Iterator[Block]:
        """The pinned blocks, the last first."""
        block = self.end
        while isinstance(block, Block):
            yield block
            block = block.parent

    def table(self) -> PageIds:
        return _page_ids([block.page for block in self.path()][::-1])

    def extend(self, tokens: Tokens, pages: PageIds) -> PageIds:
        return self._index.extend(self, tokens, pages)

    def retain(self, start: int, end: int, retention: Retention) -> None:  # noqa: ARG002
        raise UsageError(
            "prefixes cannot be retained in the blocks index, which evicts by lru alone",
            hint="take --prefix-index radix",
        )

    def unpin(self) -> PageIds:
        return self._index.unpin(self)


class BlockIndex:
    """Implements PrefixIndex, least recently used first.

    hash_of: names pages; a bad one costs time only. ghosts: the most to keep, by default a multiple of the most
    pages ever held. remembered: pages of prompts that need not be hashed again when they are looked up again.
    """

    def __init__(
        self,
        page_size: int,
        hash_of: HashFunction = blake2b_128,
        ghosts: int | None = None,
        remembered: int = MOST_PAGES,
        accounts: Accounts | None = None,
    ) -> None:
        self.page_size = page_size
        self.pages = 0
        self.leased = 0
        self.map = BlockMap()
        self.queue = TenantQueue()
        self.ghosts = BlockGhosts(ghosts)
        self._accounts = accounts or Accounts()
        self._hash_of = hash_of
        self._lookups = Lookups(page_size, hash_of, remembered)
        self._epoch = 0
        self._now = 0.0

    def match(self, namespace: Namespace, tokens: Tokens) -> int:
        found = self._lookups.of(namespace, tokens).found(self.map)
        return min(len(found), len(tokens) // self.page_size)

    def trace(self, namespace: Namespace, tokens: Tokens) -> Trace:
        lookup = self._lookups.of(namespace, tokens)
        found = self._find(namespace, tokens)
        known = len(found)
        chained = self._hash_behind(found[-1] if found else namespace)
        evicted_at = None
        for page in range(known, len(tokens) // self.page_size):
            following = lookup.hash(page)
            ghost = self.ghosts.get(following)
            if ghost is None:
                break
            if known == len(found):
                evicted_at = ghost.evicted_at
            chained, known = following, known + 1
        return Trace(len(found), known, self.ghosts.followers(chained) > 0, evicted_at)

    def continuation(self, namespace: Namespace, tokens: Tokens, limit: int) -> Tokens:
        found = self._lookups.of(namespace, tokens).found(self.map)
        pages, rest = divmod(len(tokens), self.page_size)
        if not 0 < pages <= len(found):
            return tokens[:0]
        beginning = tokens[len(tokens) - rest :].tobytes()
        block, parts, count = found[pages - 1].follower, list[bytes](), -rest
        if block is None or not block.content.startswith(beginning):
            return tokens[:0]
        while block is not None and count < limit:
            parts.append(block.content)
            count += self.page_size
            block = block.follower
        return np.frombuffer(b"".join(parts), np.int32)[rest:][:limit]

    def unpinned(self, namespace: Namespace, tokens: Tokens) -> int:
        found = self._find(namespace, tokens)
        # Whoever pins a block pins all before it.
        return len(found) - bisect_left(found, True, key=lambda block: block.pins == 0)

    def pin(self, namespace: Namespace, tokens: Tokens) -> Cursor:
        cursor = BlockCursor(self, namespace, self._epoch)
        for block in self._find(namespace, tokens):
            self._step(cursor, block)
        return cursor

    def extend(self, cursor: BlockCursor, tokens: Tokens, pages: PageIds) -> PageIds:
        """Step along the blocks that are there already and file new ones for the rest. See Cursor.extend."""
        if cursor.epoch != self._epoch:
            return pages[:0]
        kept: list[int] = []
        chained, account = self._hash_behind(cursor.end), self._accounts.of(cursor.namespace)
        for content, page in zip(self._cut(tokens), pages.tolist(), strict=True):
            chained = self._hash_of(chained + content)
            block = self.map.find(chained, cursor.end, content)
            if block is None:
                block = Block(page, chained, cursor.end, content, account)
                self._file(block)
            self._step(cursor, block)
            kept.append(block.page)
        self.ghosts.follow(self.pages)
        return _page_ids(kept)

    def unpin(self, cursor: BlockCursor) -> PageIds:
        unreachable = []
        for block in cursor.path():
            block.pins -= 1
            if block.pins:
                continue
            self._count_leased(block, -1)
            if cursor.epoch == self._epoch:
                self.queue.append(block)
            else:
                self._count_pages(block, -1)
                unreachable.append(block.page)
        cursor.end, cursor.pages = cursor.namespace, 0
        return _page_ids(unreachable)

    def evict(self, count: int, account: Account | None = None) -> PageIds:
        freed = []
        for _ in range(count):
            block = self.queue.pop() if account is None else self.queue.pop_of(account)
            self._count_pages(block, -1)
            self.map.remove(block)
            if isinstance(block.parent, Block) and block.parent.follower is block:
                block.parent.follower = None
            self.ghosts.evicted(block, self._now, keep=block.hash not in self.map)
            freed.append(block.page)
        return _page_ids(freed)

    def advance(self, now: float) -> None:
        self._now = now

    def flush(self) -> PageIds:
        freed = self.evict(len(self.queue))
        self.map.clear()
        self.ghosts.clear()
        self._epoch += 1
        return freed

    def check(self, cursors: Iterable[Cursor], claims: Claims) -> None:
        own = [cursor for cursor in cursors if isinstance(cursor, BlockCursor)]
        current = [cursor for cursor in own if cursor.epoch == self._epoch]
        stale = [cursor for cursor in own if cursor.epoch != self._epoch]
        found = check_blocks(self.map, current, stale, self._name_of, self._accounts, claims)
        for name, says, is_so in (("pages", self.pages, found.pages), ("leased", self.leased, found.leased)):
            if says != is_so:
                raise BooksError(f"the hash index says {name} = {says}; a recount gives {is_so}")
        self._accounts.check_held(found.pages_of, found.leased_of)
        self.queue.check(found.free)
        self.ghosts.check(self.map, self._now)

    def _find(self, namespace: Namespace, tokens: Tokens) -> list[Block]:
        """The longest prefix held."""
        return self._lookups.of(namespace, tokens).found(self.map)[: len(tokens) // self.page_size]

    def _cut(self, tokens: Tokens) -> Iterator[bytes]:
        """The bytes of each full page."""
        data, width = tokens.tobytes(), self.page_size * _TOKEN_BYTES
        return (data[end - width : end] for end in range(width, len(data) + 1, width))

    def _hash_behind(self, parent: Parent) -> ChainHash:
        return parent.hash if isinstance(parent, Block) else root_hash(parent, self._hash_of)

    def _name_of(self, block: Block) -> ChainHash:
        return self._hash_of(self._hash_behind(block.parent) + block.content)

    def _file(self, block: Block) -> None:
        """Take a block in, unpinned."""
        self.map.add(block)
        self.queue.append(block)
        self.ghosts.held(block)
        self._count_pages(block, 1)

    def _step(self, cursor: BlockCursor, block: Block) -> None:
        """Pin the block that comes next."""
        if block.pins == 0:
            self.queue.remove(block)
            self._count_leased(block, 1)
        block.pins += 1
        if isinstance(cursor.end, Block):
            cursor.end.follower = block
        cursor.end = block
        cursor.pages += 1

    def _count_pages(self, block: Block, change: int) -> None:
        self.pages += change
        if block.account is not None:
            block.account.pages += change

    def _count_leased(self, block: Block, change: int) -> None:
        self.leased += change
        if block.account is not None:
            block.account.leased += change


def _page_ids(pages: list[int]) -> PageIds:
    return np.array(pages, dtype=np.int32)
