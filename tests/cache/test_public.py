"""Public prefixes: whoever begins with one reads its pages, and what follows is each namespace's own.

A machine compares the cache with the slow twin, which knows of no public prefix: it is told what follows them, under
the namespace in which it must lie. The pages of a public prefix are in no step evicted, flushed or written to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cache.helpers import NewCache, begin, joined, matched, pages_of, prefixes_of, span, store, toks
from cache.twin import Twin, TwinLease
from sapwood.cache import Lease, Namespace, PrefixCache
from sapwood.cache.public import PublicIndex
from sapwood.config import CacheConfig, IndexName
from sapwood.errors import BooksError, OutOfPagesError

NOBODY = Namespace("m", "", "", "")
A, B, SALTED, OTHER_KV = (
    replace(NOBODY, tenant="a"),
    replace(NOBODY, tenant="b"),
    replace(NOBODY, tenant="a", salt="s"),
    replace(NOBODY, tenant="b", adapter="lora"),
)
NAMESPACES = (A, B, SALTED, OTHER_KV)
CAPACITY = 29
PATHS = ((0, 1, 0, 2), (0, 1, 1))
"""In pages; five in all, as they share two."""
PUBLIC_PAGES = 5

names = st.sampled_from((0, 0, 0, 1, 1, 2, 3))
blocks = st.lists(st.integers(0, 2), max_size=4)
heads = st.sampled_from(((), (0,), (0, 1), *PATHS, *PATHS))
tails = st.integers(0, 15)
picks = st.integers(0, 99)


def publish(cache: PrefixCache, *prefixes: np.ndarray[Any, Any]) -> None:
    for tokens in prefixes:
        store(cache, tokens, NOBODY)
    cache.publish(NOBODY, prefixes)
    cache.check()


@dataclass
class Pair:
    """One sequence, leased on both sides."""

    namespace: Namespace
    tokens: tuple[int, ...]
    real: Lease
    twin: TwinLease
    passed: int
    """Pages along a public path."""
    left: bool
    """Whether it has gone on in a namespace of its own."""
    written: int


class PublicMachine(RuleBasedStateMachine):
    page_size = 1
    index: IndexName = "radix"
    quotas: Mapping[str, int] = {"a": 7}

    def __init__(self) -> None:
        super().__init__()
        self.cache = PrefixCache(CAPACITY, CacheConfig(self.page_size, self.index, "lru"))
        self.cache.limit({tenant: most * self.page_size for tenant, most in self.quotas.items()})
        self.paths = [self.sequence(list(path), 0) for path in PATHS]
        publish(self.cache, *(toks(*path) for path in self.paths))
        self.twin = Twin(CAPACITY - PUBLIC_PAGES, self.page_size, quotas=self.quotas)
        self.pairs: list[Pair] = []
        self.content: dict[int, tuple[Namespace, tuple[int, ...]]] = {}
        for path in self.paths:
            for page, id in enumerate(pages_of(self.cache, toks(*path), NOBODY)):
                self.content[id] = (NOBODY, path[: (page + 1) * self.page_size])
        self.public = dict(self.content)

    def sequence(self, blocks: list[int], tail: int) -> tuple[int, ...]:
        size = self.page_size
        alphabet = [[0] * size, [*[0] * (size - 1), 1], [2, *[0] * (size - 1)]]
        return tuple([token for block in blocks for token in alphabet[block]] + [0] * (tail % size))

    def place(self, namespace: Namespace, tokens: tuple[int, ...]) -> tuple[int, Namespace]:
        """Pages along the public paths, and the namespace of what follows."""
        if namespace.adapter:
            return 0, namespace
        agreed = []
        for path in self.paths:
            ends = range(self.page_size, min(len(path), len(tokens)) + 1, self.page_size)
            agreed.append(sum(path[:end] == tokens[:end] for end in ends))
        pages = max(agreed)
        public = f"{agreed.index(pages)}:{pages}" if pages else None
        return pages, replace(namespace, public=public)

    @rule(name=names, head=heads, blocks=blocks, tail=tails, limit=st.none() | st.integers(0, 30))
    def begin(
        self, name: int, head: tuple[int, ...], blocks: list[int], tail: int, limit: int | None
    ) -> None:
        namespace, tokens = NAMESPACES[name], self.sequence([*head, *blocks], tail)
        passed, behind = self.place(namespace, tokens[:limit])
        rest = tokens[:limit][passed * self.page_size :]
        room = self.cache.room_beside(namespace, toks(*tokens), limit)
        found = self.cache.match(namespace, toks(*tokens[:limit])).tokens
        assert found == self.cache.history(namespace, toks(*tokens[:limit])).cached
        real = self.cache.lease(namespace, toks(*tokens), limit)
        assert self.cache.room() == room
        twin = self.twin.lease(behind, rest, None)
        assert real.matched == real.covered == found == passed * self.page_size + len(twin.tokens)
        left = len(rest) >= self.page_size or bool(namespace.adapter)
        self.pairs.append(Pair(namespace, tokens, real, twin, passed, left, real.matched))

    @precondition(lambda self: self.pairs)
    @rule(pick=picks, head=heads, blocks=blocks, tail=tails, held_back=st.integers(0, 2))
    def advance(self, pick: int, head: tuple[int, ...], blocks: list[int], tail: int, held_back: int) -> None:
        pair = self.pairs[pick % len(self.pairs)]
        more = [*head, *blocks] if not pair.tokens else blocks
        tokens = pair.tokens + self.sequence(more, tail)
        if not self.grow(pair, len(tokens)):
            return
        pair.tokens = tokens
        for page in range(pair.real.committed // self.page_size, len(pair.real.table)):
            end = min((page + 1) * self.page_size, len(tokens))
            self.content[int(pair.real.table[page])] = (pair.namespace, tokens[:end])
        pair.written = len(tokens)
        done = tokens[: max(0, len(tokens) - held_back)]
        self.cache.commit(pair.real, toks(*done))
        if not pair.left and pair.twin.generation == self.twin.generation:
            self.walk(pair, done)
        if pair.left:
            self.twin.commit(pair.twin, done[pair.passed * self.page_size :])

    def walk(self, pair: Pair, done: tuple[int, ...]) -> None:
        """Along the public path, and out of it where the tokens differ."""
        pages = len(done) // self.page_size
        if pages <= pair.passed:
            return
        passed, behind = self.place(pair.namespace, done)
        pair.twin.covered_pages -= passed - pair.passed
        pair.passed, pair.twin.namespace, pair.left = passed, behind, pages > passed

    def grow(self, pair: Pair, length: int) -> bool:
        own = length - pair.passed * self.page_size
        if self.twin.can_grow(pair.twin, own):
            self.cache.grow(pair.real, length)
            self.twin.grow(pair.twin, own)
            return True
        before = self.cache.books()
        with pytest.raises(OutOfPagesError):
            self.cache.grow(pair.real, length)
        assert self.cache.books() == before
        return False

    @precondition(lambda self: self.pairs)
    @rule(pick=picks)
    def release(self, pick: int) -> None:
        pair = self.pairs.pop(pick % len(self.pairs))
        self.cache.release(pair.real)
        self.twin.release(pair.twin)
        self.twin.trim(pair.namespace.tenant)

    @rule(name=names, head=heads, blocks=blocks, tail=tails)
    def come_and_go(self, name: int, head: tuple[int, ...], blocks: list[int], tail: int) -> None:
        self.begin(name, head, blocks, tail, limit=None)
        self.advance(-1, (), [], 0, 0)
        self.release(-1)

    @rule(coin=st.integers(0, 4))
    def flush(self, coin: int) -> None:
        if coin == 0:
            flushed = self.cache.flush()
            freed, kept = self.twin.flush()
            # At the first flush the public prefixes are no longer found below, and are kept.
            assert (flushed.flushed_tokens, flushed.kept_tokens) == (
                freed,
                kept + PUBLIC_PAGES * self.page_size,
            )

    @invariant()
    def books_are_equal(self) -> None:
        self.cache.check()
        books, twin = self.cache.books(), self.twin
        assert (books.free, books.private) == (twin.free, twin.private)
        assert (books.tree, books.leased) == (len(twin.here) + PUBLIC_PAGES, len(twin.pinned) + PUBLIC_PAGES)
        assert self.cache.room() == twin.room
        for account in self.cache._accounts:
            assert (account.pages, account.leased, account.private) == twin.held(account.tenant)

    @invariant()
    def each_namespace_has_what_it_stored_and_no_more(self) -> None:
        index = self.cache._index
        assert isinstance(index, PublicIndex)
        below: Any = SimpleNamespace(_index=index.below, page_size=self.page_size)
        held = [prefix for prefix in prefixes_of(below) if prefix[0] != NOBODY]
        assert sorted(held, key=repr) == sorted(self.twin.findable(), key=repr)

    @invariant()
    def every_lease_reads_its_own_tokens_or_public_ones(self) -> None:
        for id, owned in self.public.items():
            assert self.content[id] == owned, "nobody has written there"
        for pair in self.pairs:
            for page in range(-(-pair.written // self.page_size)):
                end = min((page + 1) * self.page_size, pair.written)
                owner = NOBODY if page < pair.passed else pair.namespace
                assert self.content[int(pair.real.table[page])] == (owner, pair.tokens[:end])


class PublicMachine4(PublicMachine):
    page_size = 4


class PublicMachineBlocks(PublicMachine):
    page_size = 4
    index: IndexName = "blocks"


class PublicMachineBlocksOf1(PublicMachine):
    index: IndexName = "blocks"


PublicMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40)
TestPublic = PublicMachine.TestCase
TestPublicOf4 = PublicMachine4.TestCase
TestPublicBlocks = PublicMachineBlocks.TestCase
TestPublicBlocksOf1 = PublicMachineBlocksOf1.TestCase


def test_all_read_the_same_pages_and_nobody_anothers_continuation(new_cache: NewCache) -> None:
    cache = new_cache(60)
    publish(cache, span(0, 10))
    public = pages_of(cache, span(0, 10), NOBODY)
    for namespace in (A, B, SALTED):
        assert pages_of(cache, span(0, 10), namespace) == public
    store(cache, span(0, 15), A)
    assert [matched(cache, span(0, 15), each) for each in (A, B, SALTED, OTHER_KV)] == [15, 10, 10, 0]
    store(cache, span(0, 15), B)
    assert not set(pages_of(cache, span(0, 15), A)[10:]) & set(pages_of(cache, span(0, 15), B)[10:])
    cache.check()


def test_who_leaves_a_public_prefix_early_shares_it_up_to_there_and_finds_its_own_again(
    new_cache: NewCache,
) -> None:
    cache = new_cache(60)
    publish(cache, span(0, 10))
    early = joined(span(0, 4), span(50, 55))
    store(cache, early, A)
    assert (matched(cache, early, A), matched(cache, early, B)) == (9, 4)
    assert matched(cache, joined(span(0, 5), span(50, 55)), A) == 5
    history = cache.history(B, early)
    assert (history.cached, history.known, history.branches) == (4, 4, True), "it is known how it goes on"
    cache.check()


def test_what_is_private_to_all_and_equal_in_tokens_stays_apart_whatever_a_tenant_is_called() -> None:
    cache = PrefixCache(60, CacheConfig(prefix_index="blocks"))
    publish(cache, span(0, 10))
    store(cache, span(0, 15), replace(A, salt="0:10"))
    assert matched(cache, span(10, 15), replace(A, salt="0:10")) == 0
    assert matched(cache, span(0, 15), A) == 10


def test_one_that_read_nothing_gives_its_copy_of_the_public_prefix_back(new_cache: NewCache) -> None:
    cache = new_cache(60)
    publish(cache, span(0, 10))
    lease = cache.lease(A, span(0, 15), limit=0)
    cache.grow(lease, 15)
    assert (lease.matched, cache.books().private) == (0, 15)
    cache.commit(lease, span(0, 15))
    assert lease.table.tolist()[:10] == pages_of(cache, span(0, 10), B)
    assert (cache.books().tree, cache.books().private) == (15, 0)
    cache.check()
    cache.release(lease)
    assert matched(cache, span(0, 15), A) == 15


def test_neither_a_flood_nor_a_flush_takes_a_public_prefix_away(new_cache: NewCache) -> None:
    cache = new_cache(30)
    publish(cache, span(0, 10))
    with pytest.raises(OutOfPagesError):
        cache.grow(cache.lease(A, toks(99)), 21)
    store(cache, span(100, 120), B)
    cache.flush()
    assert matched(cache, span(0, 10), A) == 10
    assert cache.room() == 20 * cache.page_size
    cache.check()


def test_retention_is_of_what_follows() -> None:
    cache = PrefixCache(30, CacheConfig(eviction_policy="lru"))
    publish(cache, span(0, 10))
    lease = begin(cache, span(0, 15), A)
    cache.retain(lease, 50, start=2, end=13)
    cache.release(lease)
    for start in (100, 200):
        store(cache, span(start, start + 17), B)
        cache.check()
    assert matched(cache, span(0, 15), A) == 13


def test_what_is_not_cached_whole_is_not_published(new_cache: NewCache) -> None:
    cache = new_cache(30)
    store(cache, span(0, 5), NOBODY)
    with pytest.raises(BooksError, match="of a prefix of 10 tokens 5 are cached"):
        cache.publish(NOBODY, [span(0, 10)])
    assert cache.books().leased == 0
    cache.check()
    lease = begin(cache, span(0, 10), A)
    with pytest.raises(BooksError, match="while nobody has a lease"):
        cache.publish(NOBODY, [span(0, 5)])
    cache.release(lease)


def test_a_public_prefix_that_is_let_go_is_found_by_the_books(new_cache: NewCache) -> None:
    cache = new_cache(30)
    publish(cache, span(0, 10))
    index = cache._index
    assert isinstance(index, PublicIndex)
    cache.release(index._paths[0].lease)
    with pytest.raises(BooksError, match="public path 0 is not what its lease holds"):
        cache.check()


def test_what_follows_a_public_prefix_is_told_to_its_own_tenant_alone() -> None:
    cache = PrefixCache(64, CacheConfig(4))
    publish(cache, span(0, 16))
    store(cache, joined(span(0, 16), span(50, 58)), A)

    def ahead(namespace: Namespace, tokens: Any) -> list[int]:
        told: list[int] = cache.continuation(namespace, tokens, 100).tolist()
        return told

    assert ahead(A, span(0, 16)) == list(range(50, 58))
    assert ahead(A, joined(span(0, 16), span(50, 53))) == list(range(53, 58))
    assert ahead(B, span(0, 16)) == []
    assert ahead(B, joined(span(0, 16), span(50, 53))) == []
    for tokens in (span(0, 10), span(0, 8), span(0, 5)):
        assert ahead(B, tokens) == list(range(len(tokens), 16)), "the path itself is everybody's"
        assert ahead(OTHER_KV, tokens) == []
