"""The prefix cache: never compute the same prefix twice.

    match ──▶ lease ──▶ grow ──▶ (the model writes KV) ──▶ commit ──▶ … ──▶ release
    look      pin       room                               share            let go

Each page is in exactly one of three places, and `check()` proves it:

    free       the pool has it
    tree       the index has it: committed, shared, evictable while no lease pins it
    private    one lease has it: being written, seen by no one else

A page moves private → tree by `commit` alone, which comes after its KV is written; so whatever can be matched
can be read. How prefixes are found is the index's business, and which pages are free is the pool's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from sapwood.cache.accounts import Account, Accounts
from sapwood.cache.blocks import BlockIndex
from sapwood.cache.books import Books, Flushed
from sapwood.cache.check import Claims
from sapwood.cache.index import PrefixIndex
from sapwood.cache.keys import Namespace, PageIds, Tokens, require_int32
from sapwood.cache.lease import Lease
from sapwood.cache.lookups import MOST_PAGES
from sapwood.cache.no_index import NoIndex
from sapwood.cache.pool import PagePool
from sapwood.cache.public import PublicIndex, PublicPath
from sapwood.cache.radix import RadixIndex
from sapwood.cache.retention import Retention
from sapwood.cache.siblings import Siblings
from sapwood.config import CacheConfig
from sapwood.errors import BooksError, OutOfPagesError

_REMEMBERED_POOLS = 64


@dataclass(frozen=True, slots=True)
class Match:
    """What a lookup found. It promises nothing about later: only a lease keeps pages from being evicted."""

    namespace: Namespace
    tokens: int
    """Length of the longest prefix that can be read, a multiple of the page size."""


@dataclass(frozen=True, slots=True)
class History:
    """What is known of a prompt beyond what can be read of it. Lengths in tokens, multiples of the page size."""

    cached: int
    """Of the prefix that can be read."""
    known: int
    """Of the prefix that can be read or could once be; never shorter than `cached`."""
    branches: bool
    """Whether something else is known to follow the known prefix, which is not empty."""
    evicted_seconds_ago: float | None
    """How long ago the first token after `cached` was evicted, if it is known."""
    elsewhere: int
    """Of the longest prefix that can be read under another adapter or salt of the same tenant."""


class PrefixCache:
    """Finds, lends, fills, shares and evicts pages of KV. Tokens are int32 arrays, lengths are in tokens."""

    def __init__(self, capacity_pages: int, config: CacheConfig | None = None) -> None:
        config = config or CacheConfig()
        self.page_size = config.page_size
        self.retains = config.prefix_index != "blocks"
        self.capacity_pages = capacity_pages
        self._pool = PagePool(capacity_pages)
        self._accounts = Accounts()
        self._index: PrefixIndex = _index_for(capacity_pages, config, self._accounts)
        self._siblings = Siblings()
        self._clock = 0.0
        self._leases: set[Lease] = set()
        self._public = np.empty(0, np.int32)
        self._private = 0
        self._evicted = 0
        self.flushes = 0

    def limit(self, most_tokens: Mapping[str, int]) -> None:
        """Say once, before anything is cached, how many tokens each tenant that is named may keep in the pool.

        All that it has counts: what is cached, pinned and being written, over all its namespaces. Whenever it
        is over, what no lease reads of its own goes first, in the order of the eviction policy: when others,
        or itself, need room, and at the latest when a lease of it is released and nothing of it waits for one
        (`expect`): what one has read and the next is about to read would else be computed for each. What is
        leased stays.
        """
        if self._leases or self._index.pages:
            raise BooksError("tenants are limited before anything is cached")
        self._accounts.open({tenant: most // self.page_size for tenant, most in most_tokens.items()})

    def publish(self, namespace: Namespace, prefixes: Sequence[Tokens]) -> None:
        """Let every namespace of the same model read these prefixes, in whole pages, from now on and for good.

        They must be cached under `namespace` by now. They are leased and never evicted, and a flush leaves them.
        What follows them is each namespace's own. To be called once, while nobody has a lease. Raises
        BooksError, and publishes nothing, if one is not cached whole.
        """
        if self._leases or not prefixes:
            raise BooksError("prefixes are published once, while nobody has a lease")
        leases = [self.lease(namespace, tokens) for tokens in prefixes]
        for tokens, lease in zip(prefixes, leases, strict=True):
            if lease.matched != len(tokens) // self.page_size * self.page_size:
                for each in leases:
                    self.release(each)
                raise BooksError(f"of a prefix of {len(tokens)} tokens {lease.matched} are cached")
        paths = [
            PublicPath(number, tokens[: lease.matched].copy(), lease, lease.table.copy())
            for number, (tokens, lease) in enumerate(zip(prefixes, leases, strict=True))
        ]
        self._index = PublicIndex(self._index, self.page_size, namespace, paths)
        self._public = np.unique(np.concatenate([path.pages for path in paths]))

    @property
    def public_pages(self) -> PageIds:
        """Pages of the public prefixes, each once."""
        return self._public

    def expect(self, namespace: Namespace) -> None:
        """A sequence of this namespace waits for a lease, until `expect_no_more` is called for it."""
        account = self._accounts.of(namespace)
        if account is not None:
            self._accounts.waits(account)

    def expect_no_more(self, namespace: Namespace) -> None:
        """It has its lease now, or gave up."""
        account = self._accounts.of(namespace)
        if account is not None:
            self._accounts.waits_no_more(account)
            self._trim(account)

    def quota(self, namespace: Namespace) -> int | None:
        """Tokens, in whole pages, that its tenant may keep; None without a limit."""
        account = self._accounts.of(namespace)
        return None if account is None else account.most_pages * self.page_size

    @property
    def now(self) -> float:
        """Seconds, as last told by `advance`."""
        return self._clock

    def freed_by(self, leases: Set[Lease]) -> PageIds:
        """Pages that only these leases hold: releasing them would make so much room. Changes nothing."""
        if not leases:
            return np.empty(0, np.int32)
        held, gone = np.zeros((2, self.capacity_pages), np.bool_)
        for lease in self._leases:
            (gone if lease in leases else held)[lease.table] = True
        return np.flatnonzero(gone & ~held).astype(np.int32)

    def held_beyond(self, leases: Set[Lease]) -> PageIds:
        """Pages that other leases than these hold, each once. Changes nothing."""
        held = np.zeros(self.capacity_pages, np.bool_)
        for lease in self._leases - leases:
            held[lease.table] = True
        return np.flatnonzero(held).astype(np.int32)

    def advance(self, now: float) -> None:
        """It is now `now`, in seconds of a clock that only rises. What is older follows from it."""
        self._clock = now
        self._index.advance(now)

    def match(self, namespace: Namespace, tokens: Tokens) -> Match:
        """Find the longest prefix that is cached. Changes nothing, not even an access time."""
        require_int32(tokens)
        return Match(namespace, self._index.match(namespace, tokens) * self.page_size)

    def history(self, namespace: Namespace, tokens: Tokens) -> History:
        """Why not more of these tokens is cached. Changes nothing."""
        require_int32(tokens)
        trace = self._index.trace(namespace, tokens)
        elsewhere = (self._index.match(other, tokens) for other in self._siblings.of(namespace))
        return History(
            cached=trace.cached * self.page_size,
            known=trace.known * self.page_size,
            branches=trace.branches,
            evicted_seconds_ago=None if trace.evicted_at is None else self._clock - trace.evicted_at,
            elsewhere=max(elsewhere, default=0) * self.page_size,
        )

    def continuation(self, namespace: Namespace, tokens: Tokens, limit: int) -> Tokens:
        """At most `limit` tokens that are known to have followed all of these in this namespace; maybe none.

        A hint, in tokens alone: it promises no pages, and may be of what was evicted. Where several things
        followed, it is what was used last. Changes nothing.
        """
        require_int32(tokens)
        return self._index.continuation(namespace, tokens, limit)

    def lease(self, namespace: Namespace, tokens: Tokens, limit: int | None = None) -> Lease:
        """Pin the longest cached prefix, at most `limit` tokens of it, and mark it as used.

        The lease reads these pages until it is released; it may be empty, and grows from there.
        """
        require_int32(tokens)
        self._siblings.saw(namespace)
        account = self._accounts.of(namespace)
        asked = tokens if limit is None else tokens[:limit]
        lease = Lease(self._index.pin(namespace, asked), self.page_size, account)
        self._leases.add(lease)
        self._accounts.began(account)
        return lease

    def grow(self, lease: Lease, length: int) -> None:
        """Make the lease's table cover `length` tokens with private pages; evicts just what is missing.

        Raises OutOfPagesError, and changes nothing, if eviction cannot make that much room.
        """
        self._require_live(lease)
        wanted = self._pages_for(length) - len(lease.table)
        if wanted <= 0:
            return
        self._make_room(wanted, lease.account)
        lease.add(self._pool.alloc(wanted))
        self._count_private(lease, wanted)

    def shrink(self, lease: Lease, length: int) -> None:
        """Free the private pages beyond `length` tokens: the counterpart of `grow`. What is committed stays."""
        self._require_live(lease)
        surplus = lease.cut(max(self._pages_for(length), lease.cursor.pages))
        self._count_private(lease, -len(surplus))
        # The first comes out of the pool first again, so that a table which grows again is in order.
        self._pool.free(surplus[::-1])

    def commit(self, lease: Lease, tokens: Tokens) -> None:
        """Hand the index all full pages of `tokens`: the lease's sequence so far, its KV written.

        The tail that does not fill a page stays private. Where the index already held the same tokens, the
        lease reads that copy from now on and its own is freed.
        """
        self._require_live(lease)
        require_int32(tokens)
        if len(tokens) > lease.covered:
            raise BooksError(f"{len(tokens)} tokens are committed to a {lease}")
        start, end = lease.committed // self.page_size, len(tokens) // self.page_size
        if start >= end:
            return
        own = lease.table[start:end]
        kept = lease.cursor.extend(tokens[start * self.page_size : end * self.page_size], own)
        self._count_private(lease, -len(kept))
        if kept is own or len(kept) == 0:
            return
        duplicates = own[kept != own]
        lease.move(start, kept)  # before the pages are freed: a freed page may be someone else's at once
        self._pool.free(duplicates)

    def retain(
        self,
        lease: Lease,
        priority: int,
        seconds: float | None = None,
        start: int = 0,
        end: int | None = None,
    ) -> None:
        """Ask that committed tokens start .. end-1 be evicted after others, for so long from now (None: for good).

        Only whole pages inside the range; a priority of 1 .. 99, where 99 stays longest; a stronger wish made
        before stands. Retained pages do go when nothing else is left: only a lease pins. Raises UsageError if
        the index has no such order.
        """
        self._require_live(lease)
        until = math.inf if seconds is None else self._clock + seconds
        last = lease.committed if end is None else min(end, lease.committed)
        lease.cursor.retain(self._pages_for(start), last // self.page_size, Retention(priority, until))

    def release(self, lease: Lease) -> None:
        """Free the private pages and let go of the rest, which stays cached. Twice is as good as once."""
        if not lease.live:
            return
        self._require_live(lease)
        self._leases.remove(lease)
        private = lease.private
        if len(private):
            self._count_private(lease, -len(private))
            self._pool.free(private)
        self._pool.free(lease.cursor.unpin())
        lease.end()
        if lease.account is not None:
            self._accounts.ended(lease.account)
            self._trim(lease.account)

    @property
    def free(self) -> int:
        """Tokens that could be allocated now without evicting any."""
        return self._pool.free_count * self.page_size

    def room(self) -> int:
        """Tokens that could be allocated now, eviction included."""
        return (self._pool.free_count + self._evictable()) * self.page_size

    def room_beside(self, namespace: Namespace, tokens: Tokens, limit: int | None = None) -> int:
        """Tokens by which a `lease` with these arguments could grow now. Changes nothing, takes no lease.

        What the lease would pin is no room, though it could be evicted before.
        """
        require_int32(tokens)
        return self.room() - self._index.unpinned(namespace, tokens[:limit]) * self.page_size

    def flush(self) -> Flushed:
        """Forget everything committed so far: none of it will match again.

        What no lease reads is freed at once. Running leases keep their pages until released, and what they
        commit from now on is not stored: it stands on KV from before the flush.
        """
        freed = self._index.flush()
        self._pool.free(freed)
        self.flushes += 1
        return Flushed(len(freed) * self.page_size, self._index.pages * self.page_size)

    def books(self) -> Books:
        tree = self._index.pages
        return Books(
            free=self._pool.free_count,
            tree=tree,
            leased=self._index.leased,
            private=self._private,
            capacity=self.capacity_pages,
            evicted_tokens=self._evicted * self.page_size,
            cached_tokens=tree * self.page_size,
        )

    def check(self) -> None:
        """Prove the books by a full recount. Raises BooksError naming the page, lease or node at fault."""
        claims = Claims(self.capacity_pages)
        claims.claim(self._pool.free_pages, "the free pages")
        for lease in self._leases:
            claims.claim(lease.private, lease)
            if not np.array_equal(lease.table[: lease.cursor.pages], lease.cursor.table()):
                raise BooksError(f"the table of a {lease} differs from its path in the index")
        self._index.check([lease.cursor for lease in self._leases], claims)
        claims.settle()
        self._check_accounts()
        private = sum(len(lease.private) for lease in self._leases)
        if private != self._private:
            raise BooksError(f"{self._private} pages are said to be private; a recount gives {private}")

    def _check_accounts(self) -> None:
        private: Counter[Account] = Counter()
        leases: Counter[Account] = Counter()
        for lease in self._leases:
            if lease.account is not None:
                private[lease.account] += len(lease.private)
                leases[lease.account] += 1
        self._accounts.check(private, leases)

    def _make_room(self, wanted: int, grower: Account | None) -> None:
        missing = wanted - self._pool.free_count
        if missing <= 0:
            return
        if missing > self._evictable():
            raise OutOfPagesError(
                f"{wanted} pages are needed; of {self.capacity_pages}, {self._pool.free_count} are free "
                f"and {self._evictable()} can be evicted",
                hint="release a lease, or give the cache more pages (--kv-memory)",
            )
        for account, surplus in self._accounts.surpluses(grower, wanted):
            own = min(missing, surplus)
            self._evict(own, account)
            missing -= own
        self._evict(missing)

    def _trim(self, account: Account) -> None:
        if not account.waiting:
            self._evict(account.surplus(), account)

    def _evict(self, count: int, account: Account | None = None) -> None:
        if count:
            self._pool.free(self._index.evict(count, account))
            self._evicted += count

    def _count_private(self, lease: Lease, change: int) -> None:
        self._private += change
        if lease.account is not None:
            lease.account.private += change

    def _evictable(self) -> int:
        return self._index.pages - self._index.leased

    def _pages_for(self, length: int) -> int:
        return -(-length // self.page_size)

    def _require_live(self, lease: Lease) -> None:
        if lease not in self._leases:
            raise BooksError(f"a {lease} is used that this cache does not hold")


def _index_for(capacity: int, config: CacheConfig, accounts: Accounts) -> PrefixIndex:
    if config.prefix_index == "none":
        return NoIndex()
    if config.prefix_index == "blocks":
        remembered = min(MOST_PAGES, _REMEMBERED_POOLS * capacity)
        return BlockIndex(config.page_size, remembered=remembered, accounts=accounts)
    return RadixIndex(capacity, config, accounts)
