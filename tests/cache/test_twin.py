"""The cache against its slow twin: any order of calls leaves both with the same pages in the same places.

Under a policy that is a sort key the twin says which page goes. Under the default policy, which learns, it cannot
without being the policy: there it is told which pages went, and they must be as many as were missing, read by
nobody and followed by nothing. It knows of all that was ever evicted, the cache of no more than that: of exactly
that where its ghosts are given room without end.

Besides, every page carries what was "written" into it, and every lease must read back its own tokens: a page that is
freed too early, shared by mistake or found under the wrong tokens shows up as wrong content.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cache.helpers import prefixes_of, toks
from cache.twin import Prefix, Twin, TwinLease
from sapwood.cache import History, Lease, Namespace, PrefixCache
from sapwood.cache.blocks import BlockIndex
from sapwood.cache.radix import RadixIndex
from sapwood.config import CacheConfig, EvictionName, IndexName
from sapwood.errors import OutOfPagesError

CAPACITY = 24
NAMESPACES = (Namespace("m"), Namespace("m", tenant=""), Namespace("m", salt="s"))

names = st.sampled_from((0, 0, 0, 0, 1, 2))  # mostly the first: sharing must be frequent
blocks = st.lists(st.integers(0, 2), max_size=6)
tails = st.integers(0, 15)
picks = st.integers(0, 99)


@dataclass
class Pair:
    """One sequence, leased on both sides."""

    namespace: Namespace
    tokens: tuple[int, ...]
    real: Lease
    twin: TwinLease
    written: int
    """Tokens at the front whose KV exists."""


class CacheMachine(RuleBasedStateMachine):
    page_size = 1
    index: IndexName = "radix"
    policy: EvictionName = "lru"
    forgets = False
    namespaces = NAMESPACES
    quotas: Mapping[str, int] = {}

    def __init__(self) -> None:
        super().__init__()
        self.cache = PrefixCache(CAPACITY, CacheConfig(self.page_size, self.index, self.policy))
        # A part of a page counts for nothing.
        self.cache.limit({who: (most + 1) * self.page_size - 1 for who, most in self.quotas.items()})
        remembers = self.index != "none"
        self.twin = Twin(CAPACITY, self.page_size, self.policy, remembers=remembers, quotas=self.quotas)
        if isinstance(self.cache._index, RadixIndex) and not self.forgets:
            ghosts = self.cache._index.ghosts
            ghosts._most_nodes = ghosts._most_tokens = 1_000_000
        self.pairs: list[Pair] = []
        self.content: dict[int, tuple[Namespace, tuple[int, ...]]] = {}

    def sequence(self, blocks: list[int], tail: int) -> tuple[int, ...]:
        """Pages from a tiny alphabet, two of which differ in their last token only; then a partial page."""
        size = self.page_size
        alphabet = [[0] * size, [*[0] * (size - 1), 1], [2, *[0] * (size - 1)]]
        tokens = [token for block in blocks for token in alphabet[block]]
        return tuple(tokens + [0] * (tail % size))

    @initialize(stored=st.lists(st.tuples(names, blocks, tails), min_size=4, max_size=8))
    def warm_up(self, stored: list[tuple[int, list[int], int]]) -> None:
        for name, blocks, tail in stored:
            self.come_and_go(name, blocks, tail)

    @rule(name=names, blocks=blocks, tail=tails, limit=st.none() | st.integers(0, 40))
    def begin(self, name: int, blocks: list[int], tail: int, limit: int | None) -> None:
        namespace, tokens = self.namespaces[name], self.sequence(blocks, tail)
        found = self.cache.match(namespace, toks(*tokens[:limit])).tokens
        before = self.cache.books()
        room = self.cache.room_beside(namespace, toks(*tokens), limit)
        assert self.cache.books() == before
        real = self.cache.lease(namespace, toks(*tokens), limit)
        assert self.cache.room() == room, "what a lease leaves is what was said to be beside it"
        twin = self.twin.lease(namespace, tokens, limit)
        assert real.matched == real.covered == real.committed == len(twin.tokens) == found
        self.pairs.append(Pair(namespace, tokens, real, twin, real.matched))

    @rule(seconds=st.sampled_from((0.1, 1.0, 1.0, 30.0, 5000.0)))
    def wait(self, seconds: float) -> None:
        self.twin.clock += seconds
        self.cache.advance(self.twin.clock)

    @precondition(lambda self: self.pairs and self.index == "radix")
    @rule(
        pick=picks,
        priority=st.sampled_from((-1, 0, 1, 50, 50, 100)),
        seconds=st.sampled_from((None, 0.0, 1.0, 20.0)),
        ends=st.tuples(st.integers(0, 9), st.integers(0, 40)),
    )
    def retain(self, pick: int, priority: int, seconds: float | None, ends: tuple[int, int]) -> None:
        pair = self.pairs[pick % len(self.pairs)]
        self.cache.retain(pair.real, priority, seconds, *ends)
        if pair.twin.generation == self.twin.generation:
            self.twin.retain(pair.twin, priority, seconds, *ends)

    @rule(name=names, blocks=blocks, tail=tails)
    def ask(self, name: int, blocks: list[int], tail: int) -> None:
        namespace, tokens, twin = self.namespaces[name], self.sequence(blocks, tail), self.twin
        before = self.cache.books()
        told = self.cache.history(namespace, toks(*tokens))
        assert self.cache.books() == before
        assert told.cached == twin.match(namespace, tokens)
        others = (
            other
            for other in self.namespaces
            if other.tenant == namespace.tenant and other.salt is None and other != namespace
        )
        assert told.elsewhere == max((twin.match(other, tokens) for other in others), default=0)
        if self.index == "radix":
            self.compare_ghosts(namespace, tokens, told)

    def compare_ghosts(self, namespace: Namespace, tokens: tuple[int, ...], told: History) -> None:
        known, evicted_at = self.twin.remembered(namespace, tokens), self.twin.evicted_at(namespace, tokens)
        assert told.cached <= told.known <= known
        if self.forgets:
            return
        assert (told.known, told.branches) == (known, self.twin.branches(namespace, tokens))
        assert (told.evicted_seconds_ago is None) == (evicted_at is None)
        if evicted_at is not None and told.evicted_seconds_ago is not None:
            # The end of a stretch that was taken bit by bit is said to have gone with its beginning.
            assert 0 <= told.evicted_seconds_ago <= self.twin.clock - evicted_at

    @precondition(lambda self: self.pairs)
    @rule(pick=picks, blocks=blocks, tail=tails, held_back=st.integers(0, 2))
    def advance(self, pick: int, blocks: list[int], tail: int, held_back: int) -> None:
        pair = self.pairs[pick % len(self.pairs)]
        tokens = pair.tokens + self.sequence(blocks, tail)
        if not self.grow(pair, len(tokens)):
            return
        pair.tokens = tokens
        for page in range(pair.real.committed // self.page_size, len(pair.real.table)):
            end = min((page + 1) * self.page_size, len(tokens))
            self.content[int(pair.real.table[page])] = (pair.namespace, tokens[:end])
        pair.written = len(tokens)
        done = tokens[: max(0, len(tokens) - held_back)]
        self.cache.commit(pair.real, toks(*done))
        self.twin.commit(pair.twin, done)

    @precondition(lambda self: self.pairs)
    @rule(pick=picks, surplus=st.integers(0, 20), more=st.integers(0, 20))
    def shrink(self, pick: int, surplus: int, more: int) -> None:
        """Somebody takes pages that it then does not need; its own tokens keep theirs."""
        pair = self.pairs[pick % len(self.pairs)]
        self.grow(pair, pair.written + more + surplus)
        length = min(pair.written + more, pair.real.covered)
        self.cache.shrink(pair.real, length)
        self.twin.shrink(pair.twin, length)
        assert pair.real.covered >= length

    @rule(name=names, blocks=blocks, tail=tails, limit=st.integers(1, 40))
    def go_on(self, name: int, blocks: list[int], tail: int, limit: int) -> None:
        namespace, tokens = self.namespaces[name], self.sequence(blocks, tail)
        before = self.cache.books()
        told = tuple(self.cache.continuation(namespace, toks(*tokens), limit).tolist())
        assert self.cache.books() == before
        assert len(told) <= limit
        assert not told or self.twin.goes_on(namespace, tokens + told[:-1])
        if self.index == "radix" and not self.forgets:
            assert bool(told) == self.twin.goes_on(namespace, tokens)

    def grow(self, pair: Pair, length: int) -> bool:
        before, table = self.cache.books(), pair.real.table.tolist()
        if self.twin.can_grow(pair.twin, length):
            missing = self.twin.missing(pair.twin, length)
            self.cache.grow(pair.real, length)
            assert pair.real.covered >= length
            if self.policy == "default":
                due = self.twin.due(pair.twin, length)
                gone = self.follow(missing)
                for tenant, count in due:
                    assert sum(page[1].tenant == tenant for page in gone) >= count
                self.twin.cover(pair.twin, length)
            else:
                self.twin.grow(pair.twin, length)
            return True
        with pytest.raises(OutOfPagesError):
            self.cache.grow(pair.real, length)
        assert self.cache.books() == before
        assert pair.real.table.tolist() == table
        return False

    def follow(self, missing: int) -> list[Prefix]:
        """Tell the twin which pages the cache has evicted. That nothing followed them is compared by the invariants."""
        now = set(prefixes_of(self.cache))
        gone = [page for page in self.twin.here if page[0] == self.twin.generation and page[1:] not in now]
        assert len(gone) == missing
        assert not self.twin.pinned & set(gone)
        self.twin.lose(gone)
        return gone

    @precondition(lambda self: self.pairs)
    @rule(pick=picks, again=st.booleans())
    def release(self, pick: int, *, again: bool) -> None:
        pair = self.pairs.pop(pick % len(self.pairs))
        self.let_go(pair)
        if again:
            self.cache.release(pair.real)
        assert not pair.real.live

    def let_go(self, pair: Pair) -> None:
        tenant = pair.namespace.tenant
        self.cache.release(pair.real)
        self.twin.release(pair.twin)
        if self.policy != "default":
            self.twin.trim(tenant)
        elif tenant in self.quotas:
            gone = self.follow(self.twin.surplus(tenant))
            assert all(page[1].tenant == tenant for page in gone)

    @rule(name=names, blocks=blocks, tail=tails)
    def come_and_go(self, name: int, blocks: list[int], tail: int) -> None:
        self.begin(name, blocks, tail, limit=None)
        self.advance(-1, [], 0, 0)
        self.release(-1, again=False)

    @rule(
        pages=st.integers(1, 3) | st.integers(1, CAPACITY),
        flush=st.integers(0, 4).map(lambda coin: coin == 4),
    )
    def press(self, pages: int, *, flush: bool) -> None:
        """Somebody needs pages for a moment and commits nothing; seldom, all is flushed first."""
        if flush:
            self.flush()
        namespace = Namespace("passing by")
        real, twin = self.cache.lease(namespace, toks()), self.twin.lease(namespace, (), None)
        self.grow(Pair(namespace, (), real, twin, 0), pages * self.page_size)
        self.cache.release(real)
        self.twin.release(twin)

    def flush(self) -> None:
        flushed = self.cache.flush()
        assert (flushed.flushed_tokens, flushed.kept_tokens) == self.twin.flush()

    @invariant()
    def books_are_equal(self) -> None:
        self.cache.check()
        books, twin = self.cache.books(), self.twin
        assert (books.free, books.tree, books.private) == (twin.free, len(twin.here), twin.private)
        assert books.free + books.tree + books.private == CAPACITY
        assert books.leased == len(twin.pinned)
        assert books.cached_tokens == len(twin.here) * self.page_size
        assert books.evicted_tokens == twin.evicted * self.page_size
        assert self.cache.room() == twin.room
        for account in self.cache._accounts:
            assert (account.pages, account.leased, account.private) == twin.held(account.tenant)

    @invariant()
    def the_same_prefixes_are_cached(self) -> None:
        if self.index != "none":
            assert sorted(prefixes_of(self.cache), key=repr) == sorted(self.twin.findable(), key=repr)
        if isinstance(self.cache._index, RadixIndex):
            assert len(self.cache._index.roots) <= len(self.namespaces)
            assert not self.cache._index.ghosts.over

    @invariant()
    def every_lease_reads_its_own_tokens(self) -> None:
        for pair in self.pairs:
            assert len(pair.twin.tokens) == pair.real.committed
            for page in range(-(-pair.written // self.page_size)):
                end = min((page + 1) * self.page_size, pair.written)
                assert self.content[int(pair.real.table[page])] == (pair.namespace, pair.tokens[:end])


class ForgetfulMachine(CacheMachine):
    """With as few ghosts as its pool calls for. What is forgotten makes no difference to what is evicted."""

    page_size = 4
    forgets = True


class CacheMachine16(CacheMachine):
    page_size = 16


class MruMachine(CacheMachine):
    policy: EvictionName = "mru"


class LfuMachine(CacheMachine):
    policy: EvictionName = "lfu"


class FifoMachine(CacheMachine):
    page_size = 4
    policy: EvictionName = "fifo"


class FiloMachine(CacheMachine):
    policy: EvictionName = "filo"


class SlruMachine(CacheMachine):
    page_size = 4
    policy: EvictionName = "slru"


class PriorityMachine(CacheMachine):
    policy: EvictionName = "priority"


class DefaultMachine(CacheMachine):
    policy: EvictionName = "default"


class ForgetfulDefaultMachine(DefaultMachine):
    page_size = 4
    forgets = True


class BlocksMachine(CacheMachine):
    index: IndexName = "blocks"


class BlocksMachine4(BlocksMachine):
    page_size = 4


class CollidingMachine(BlocksMachine):
    """Every hash collides with every other, or with a quarter of them."""

    page_size = 2
    hashes = 1

    def __init__(self) -> None:
        super().__init__()
        self.cache._index = BlockIndex(self.page_size, lambda data: bytes([sum(data) % self.hashes]))


class CollidingMachine4(CollidingMachine):
    hashes = 4


class QuotaMachine(CacheMachine):
    """One tenant with and without a salt, and another; `press` comes from one without a quota."""

    namespaces = (
        Namespace("m", tenant="a"),
        Namespace("m", tenant="b"),
        Namespace("m", tenant="a", salt="s"),
    )
    quotas: Mapping[str, int] = {"a": 9, "b": 2}


class QuotaMachineLfu(QuotaMachine):
    page_size = 4
    policy: EvictionName = "lfu"


class QuotaMachineMru(QuotaMachine):
    policy: EvictionName = "mru"
    quotas: Mapping[str, int] = {"a": 0, "b": 40}


class QuotaMachineSlru(QuotaMachine):
    policy: EvictionName = "slru"
    quotas: Mapping[str, int] = {"b": 3}


class QuotaMachinePriority(QuotaMachine):
    policy: EvictionName = "priority"


class QuotaMachineDefault(QuotaMachine):
    policy: EvictionName = "default"


class QuotaMachineBlocks(QuotaMachine):
    page_size = 4
    index: IndexName = "blocks"


class CacheMachineNone(CacheMachine):
    page_size = 4
    index: IndexName = "none"


CacheMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40)
CacheMachineNone.TestCase.settings = settings(max_examples=10, stateful_step_count=30)

TestLru = CacheMachine.TestCase
TestLruForgetful = ForgetfulMachine.TestCase
TestLruOf16 = CacheMachine16.TestCase
TestMru = MruMachine.TestCase
TestLfu = LfuMachine.TestCase
TestFifo = FifoMachine.TestCase
TestFilo = FiloMachine.TestCase
TestSlru = SlruMachine.TestCase
TestPriority = PriorityMachine.TestCase
TestDefault = DefaultMachine.TestCase
TestDefaultForgetful = ForgetfulDefaultMachine.TestCase
TestBlocksOf1 = BlocksMachine.TestCase
TestBlocksOf4 = BlocksMachine4.TestCase
TestOneHash = CollidingMachine.TestCase
TestFourHashes = CollidingMachine4.TestCase
TestNoIndex = CacheMachineNone.TestCase
TestQuotaLru = QuotaMachine.TestCase
TestQuotaLfu = QuotaMachineLfu.TestCase
TestQuotaMru = QuotaMachineMru.TestCase
TestQuotaSlru = QuotaMachineSlru.TestCase
TestQuotaPriority = QuotaMachinePriority.TestCase
TestQuotaDefault = QuotaMachineDefault.TestCase
TestQuotaBlocks = QuotaMachineBlocks.TestCase
