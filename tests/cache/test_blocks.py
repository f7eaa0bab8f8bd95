"""The block-hash index. Numbers in brackets are those of the peer behaviours and bug reports that a test re-writes.

Of the behaviours of block pools (62–80), 71 is the index "none", 73 and 79 have nothing here to hold on to, and 76 and
78 are other than there: a prefix is held once, and whoever computes it again moves to the copy that is there.
"""

from __future__ import annotations

import hashlib
import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cache.helpers import (
    NS,
    OTHER,
    begin,
    blocks_of,
    joined,
    matched,
    pages_of,
    prefixes_of,
    span,
    store,
    toks,
)
from sapwood.cache import Lease, Namespace, PrefixCache
from sapwood.cache.block import Block
from sapwood.cache.blocks import BlockIndex
from sapwood.cache.chain import blake2b_128, root_hash
from sapwood.cache.check import Claims
from sapwood.cache.index import Trace
from sapwood.config import CacheConfig, EvictionName
from sapwood.errors import OutOfPagesError, UsageError


def paged(capacity: int, page_size: int = 16) -> PrefixCache:
    return PrefixCache(capacity, CacheConfig(page_size, "blocks"))


def queue_of(cache: PrefixCache) -> list[int]:
    """The pages in the order in which they would be evicted."""
    return [block.page for block in blocks_of(cache).queue]


def path_of(cache: PrefixCache, tokens: NDArray[np.int32], namespace: Namespace = NS) -> list[Block]:
    return blocks_of(cache)._find(namespace, tokens)


def hashes_of(cache: PrefixCache, tokens: NDArray[np.int32], namespace: Namespace = NS) -> list[bytes]:
    return [block.hash for block in path_of(cache, tokens, namespace)]


# ── blocks, hits and the free queue ──────────────────────────────────────────────────────────────────────────────


def test_full_pages_get_chained_hashes_and_the_partial_one_none() -> None:
    """[62]"""
    cache = paged(10)
    lease = begin(cache, span(0, 55))
    assert (lease.matched, len(lease.table), lease.committed) == (0, 4, 48)
    expected, chained = [], root_hash(NS)
    for start in (0, 16, 32):
        page = chained + span(start, start + 16).tobytes()
        chained = hashlib.blake2b(page, digest_size=16).digest()
        expected.append(chained)
    assert hashes_of(cache, span(0, 55)) == expected
    assert [block.page for block in path_of(cache, span(0, 55))] == lease.table[:3].tolist()
    assert [block.pins for block in path_of(cache, span(0, 55))] == [1, 1, 1]
    assert blocks_of(cache).pages == 3
    cache.check()


def test_a_hit_while_the_owner_runs_pins_the_blocks_twice() -> None:
    """[63]"""
    cache = paged(10)
    begin(cache, span(0, 55))
    second = cache.lease(NS, joined(span(0, 48), span(500, 505)))
    cache.grow(second, 53)
    assert second.matched == 48
    assert [block.pins for block in path_of(cache, span(0, 55))] == [2, 2, 2]
    assert cache.books().free == 5
    cache.check()


def test_released_blocks_are_queued_the_deepest_first_and_can_still_be_hit() -> None:
    """[64, 65]"""
    cache = paged(10)
    first = begin(cache, span(0, 55))
    second = begin(cache, joined(span(0, 48), span(500, 505)))
    pages = first.table[:3].tolist()
    cache.release(first)
    cache.release(second)
    assert queue_of(cache) == pages[::-1]
    assert (cache.books().free, cache.room()) == (7, 160)
    third = cache.lease(NS, span(0, 60), limit=59)
    cache.grow(third, 60)
    assert third.table[:3].tolist() == pages
    assert queue_of(cache) == []
    cache.check()


def test_taking_the_whole_pool_page_by_page_shows_the_order_of_eviction() -> None:
    """[66]"""
    cache = paged(10)
    lease = begin(cache, span(0, 55))
    pages = lease.table[:3].tolist()
    cache.release(lease)
    greedy = cache.lease(OTHER, toks())
    for count in range(1, 11):
        cache.grow(greedy, 16 * count)
        assert cache.books().evicted_tokens == 16 * max(0, count - 7)
        cache.check()
    assert greedy.table[7:].tolist() == pages[::-1]
    assert (queue_of(cache), list(prefixes_of(cache))) == ([], [])


def test_a_block_is_hashed_when_decoding_fills_it() -> None:
    """[67]"""
    cache = paged(10)
    lease = begin(cache, span(0, 55))
    for length, pages, hashed in ((59, 4, 3), (78, 5, 4)):
        cache.grow(lease, length)
        cache.commit(lease, span(0, length))
        assert (len(lease.table), len(hashes_of(cache, span(0, 100)))) == (pages, hashed)
        cache.check()


def test_two_requests_are_queued_one_after_the_other_and_a_hit_leaves_the_queue() -> None:
    """[68]"""
    cache = paged(10)
    first, second = begin(cache, span(0, 90)), begin(cache, span(200, 248))
    long, short = first.table[:5].tolist(), second.table.tolist()
    cache.release(first)
    assert queue_of(cache) == long[::-1]
    cache.release(second)
    assert queue_of(cache) == long[::-1] + short[::-1]
    third = cache.lease(NS, joined(span(0, 32), span(700, 703)))
    assert third.table.tolist() == long[:2]
    assert queue_of(cache) == long[:1:-1] + short[::-1]
    cache.grow(third, 35)
    assert cache.room() == 7 * 16
    cache.release(third)
    assert queue_of(cache) == long[:1:-1] + short[::-1] + long[1::-1]
    cache.check()


def test_a_recycled_page_is_no_longer_found_under_its_old_hash() -> None:
    """[69, ME-14]"""
    cache = paged(1)
    store(cache, span(0, 16))
    page = pages_of(cache, span(0, 16))
    decoding = cache.lease(NS, span(50, 65))
    cache.grow(decoding, 15)
    assert decoding.table.tolist() == page
    assert matched(cache, span(0, 16)) == 0
    assert list(blocks_of(cache).map) == []
    cache.check()


def test_a_long_decode_takes_a_cached_prefix_over_page_by_page() -> None:
    """[ME-14]"""
    cache = paged(8)
    store(cache, span(0, 64))
    old = pages_of(cache, span(0, 64))
    decoding = begin(cache, span(500, 516))
    for length in range(17, 129):
        cache.grow(decoding, length)
        cache.commit(decoding, span(500, 500 + length))
        left = pages_of(cache, span(0, 64))
        assert left == old[: len(left)]
        assert not set(left) & set(decoding.table.tolist())
        cache.check()
    assert matched(cache, span(0, 64)) == 0


def test_a_block_that_was_hit_is_not_the_victim() -> None:
    """[70]"""
    cache = paged(2)
    store(cache, span(0, 16))
    store(cache, span(50, 66))
    (hit,), (other,) = pages_of(cache, span(0, 16)), pages_of(cache, span(50, 66))
    lease = cache.lease(NS, span(0, 32))
    cache.grow(lease, 32)
    assert lease.table.tolist() == [hit, other]
    cache.check()


def test_hashes_stay_as_they_are_while_a_prompt_is_committed_in_parts() -> None:
    """[72]"""
    cache = paged(10, 4)
    lease = cache.lease(NS, span(0, 14))
    cache.grow(lease, 14)
    cache.commit(lease, span(0, 8))
    early = hashes_of(cache, span(0, 14))
    cache.commit(lease, span(0, 14))
    assert len(early) == 2
    assert hashes_of(cache, span(0, 14))[:2] == early
    assert len(list(blocks_of(cache).map)) == 3
    cache.check()


def test_a_refused_growth_leaves_pins_and_queue_as_they_were() -> None:
    """[74]"""
    cache = paged(9)
    running = begin(cache, span(0, 48))
    store(cache, span(0, 96))
    hit = cache.lease(NS, span(0, 144))
    cache.release(hit)
    before = queue_of(cache)
    with pytest.raises(OutOfPagesError):
        cache.grow(cache.lease(OTHER, toks()), 7 * 16)
    assert [block.pins for block in path_of(cache, span(0, 96))] == [1, 1, 1, 0, 0, 0]
    assert (queue_of(cache), running.committed) == (before, 48)
    cache.check()


def test_after_a_flush_nothing_can_be_found_though_leases_read_on() -> None:
    """[75, as a flush here is never refused]"""
    cache = paged(10)
    running, reader = begin(cache, span(0, 48)), begin(cache, span(0, 32))
    store(cache, span(200, 232))
    assert cache.flush().flushed_tokens == 32
    assert (list(prefixes_of(cache)), queue_of(cache)) == ([], [])
    assert cache.books().leased == 3
    store(cache, span(0, 48))
    for lease in (running, reader):
        cache.check()
        cache.release(lease)
    assert (cache.books().free, matched(cache, span(0, 48))) == (7, 48)
    cache.check()


def test_one_that_reads_nothing_computes_the_same_hashes_and_moves_to_the_copy_held() -> None:
    """[76, 78]"""
    cache = paged(10)
    store(cache, span(0, 48))
    held, hashes = pages_of(cache, span(0, 48)), hashes_of(cache, span(0, 48))
    scoring = cache.lease(NS, span(0, 50), limit=0)
    cache.grow(scoring, 50)
    assert scoring.matched == 0
    assert not set(scoring.table.tolist()) & set(held)
    cache.commit(scoring, span(0, 50))
    assert scoring.table[:3].tolist() == held
    assert hashes_of(cache, span(0, 50)) == hashes
    assert matched(cache, span(0, 50)) == 48
    cache.check()


@pytest.mark.parametrize("policy", ["lfu", "priority"])
def test_an_eviction_policy_that_the_index_has_not_is_refused(policy: EvictionName) -> None:
    with pytest.raises(UsageError, match=f"eviction policy is {policy}; the blocks index evicts by lru") as e:
        CacheConfig(prefix_index="blocks", eviction_policy=policy)
    assert e.value.hint is not None
    for known in ("lru", "default"):
        assert CacheConfig(prefix_index="blocks", eviction_policy=known).eviction_policy == known


def test_nothing_can_be_retained() -> None:
    cache = paged(10)
    lease = begin(cache, span(0, 48))
    with pytest.raises(UsageError, match="cannot be retained in the blocks index") as refused:
        cache.retain(lease, priority=50)
    assert refused.value.hint is not None
    cache.check()


def test_a_block_is_small() -> None:
    """[81]"""
    block = Block(0, b"", NS, b"")
    assert not hasattr(block, "__dict__")
    with pytest.raises(AttributeError):
        block.anything = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_shared_prefix_is_evicted_after_all_that_follow_it(order: tuple[int, ...]) -> None:
    """Whoever of three lets go last, and although one of them read no more than the prefix."""
    cache = paged(40, 1)
    prompts = [span(0, 6), joined(span(0, 6), span(50, 54)), joined(span(0, 3), span(90, 95))]
    leases = [begin(cache, prompt) for prompt in prompts]
    for which in order:
        cache.release(leases[which])
        cache.check()
    greedy = cache.lease(OTHER, toks())
    cache.grow(greedy, cache.books().free)
    while cache.books().tree:
        cache.grow(greedy, greedy.covered + 1)
        cached = set(prefixes_of(cache))
        assert all((where, tokens[:-1]) in cached for where, tokens in cached if len(tokens) > 1)
        cache.check()


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_salt_goes_into_the_first_hash_and_from_there_through_the_chain() -> None:
    """[85, 86]"""
    cache = paged(20)
    salted = Namespace("model", salt="salt1")
    lease = begin(cache, span(0, 55), salted)
    first, *rest = hashes_of(cache, span(0, 48), salted)
    assert first == blake2b_128(root_hash(salted) + span(0, 16).tobytes())
    chained = first
    for start, found in zip((16, 32), rest, strict=True):
        chained = blake2b_128(chained + span(start, start + 16).tobytes())
        assert found == chained
    cache.grow(lease, 64)
    cache.commit(lease, span(0, 64))
    assert hashes_of(cache, span(0, 64), salted)[3] == blake2b_128(chained + span(48, 64).tobytes())
    assert matched(cache, joined(span(0, 48), span(900, 910)), salted) == 48
    cache.check()


@pytest.mark.parametrize(
    "other",
    [
        Namespace("model", salt="salt2"),
        Namespace("model"),
        Namespace("model", salt=""),
        Namespace("model", adapter="salt1"),
        Namespace("model", tenant="salt1"),
        Namespace("model2", salt="salt1"),
    ],
    ids=repr,
)
def test_another_namespace_misses_with_other_hashes_throughout(other: Namespace) -> None:
    """[87, 92, TE-06]"""
    cache = paged(20)
    salted = Namespace("model", salt="salt1")
    store(cache, span(0, 48), salted)
    assert matched(cache, span(0, 48), other) == 0
    store(cache, span(0, 48), other)
    assert not set(hashes_of(cache, span(0, 48), salted)) & set(hashes_of(cache, span(0, 48), other))
    assert not set(pages_of(cache, span(0, 48), salted)) & set(pages_of(cache, span(0, 48), other))
    cache.check()


class Reader:
    """Leases prompts from a cache with a bad hash, and sees that each page read was written for the same prefix."""

    def __init__(self, index: BlockIndex, capacity: int) -> None:
        self.cache = PrefixCache(capacity, CacheConfig(index.page_size, "blocks"))
        self.cache._index = index
        self.written: dict[int, tuple[Namespace, tuple[int, ...]]] = {}
        self.reused = 0

    def run(self, namespace: Namespace, tokens: tuple[int, ...]) -> Lease:
        lease = self.cache.lease(namespace, toks(*tokens))
        self.reused += lease.matched
        self.read(lease, namespace, tokens)
        computed = len(lease.table)
        self.cache.grow(lease, len(tokens))
        for at in range(computed, len(lease.table)):
            self.written[int(lease.table[at])] = (namespace, tokens[: (at + 1) * self.cache.page_size])
        self.cache.commit(lease, toks(*tokens))
        self.read(lease, namespace, tokens)
        return lease

    def read(self, lease: Lease, namespace: Namespace, tokens: tuple[int, ...]) -> None:
        for at, page in enumerate(lease.table.tolist()):
            assert self.written[page] == (namespace, tokens[: (at + 1) * self.cache.page_size])


def test_two_thousand_prompts_under_a_hash_of_eight_bits_get_no_wrong_page() -> None:
    """[TE-01]"""
    reader = Reader(BlockIndex(4, lambda data: blake2b_128(data)[:1]), 400)
    rng = random.Random(5)
    prompts: list[tuple[int, ...]] = [()]
    running: list[Lease] = []
    for turn in range(2_000):
        head = rng.choice(prompts)[: rng.randrange(40)]
        prompts.append(head + tuple(rng.randrange(3) for _ in range(rng.randrange(1, 24))))
        running.append(reader.run(rng.choice((NS, NS, OTHER)), prompts[-1]))
        if len(running) > 6:
            reader.cache.release(running.pop(rng.randrange(6)))
        if turn % 50 == 0:
            reader.cache.check()
    reader.cache.check()
    assert reader.reused > 10_000, "otherwise hits were never put to the test"
    assert reader.cache.books().evicted_tokens > 10_000


# ── traces ───────────────────────────────────────────────────────────────────────────────────────────────────────


def index_with(index: BlockIndex, *prompts: NDArray[np.int32]) -> BlockIndex:
    """Store prompts, one after the other, on pages that hold nothing."""
    for prompt in prompts:
        cursor = index.pin(NS, prompt)
        wanted = len(prompt) // index.page_size - cursor.pages
        taken = {block.page for block in index.map}
        own = list(itertools.islice((page for page in itertools.count() if page not in taken), wanted))
        start, end = cursor.pages * index.page_size, (cursor.pages + wanted) * index.page_size
        cursor.extend(prompt[start:end], toks(*own))
        cursor.unpin()
    return index


def test_a_trace_tells_held_from_once_held_and_says_when_it_went() -> None:
    index = index_with(BlockIndex(4), span(0, 24))
    assert index.trace(NS, span(0, 30)) == Trace(cached=6, known=6, branches=False, evicted_at=None)
    index.advance(10.0)
    index.evict(2)
    index.advance(12.5)
    index.evict(1)
    assert index.trace(NS, span(0, 24)) == Trace(cached=3, known=6, branches=False, evicted_at=12.5)
    assert index.trace(NS, span(0, 19)) == Trace(cached=3, known=4, branches=True, evicted_at=12.5)
    assert index.trace(NS, joined(span(0, 8), span(90, 99))) == Trace(2, 2, branches=True, evicted_at=None)
    assert index.trace(NS, span(4, 24)) == index.trace(OTHER, span(0, 24)) == Trace(0, 0, False, None)


def test_what_is_committed_again_is_no_ghost_and_a_flush_forgets_them() -> None:
    index = index_with(BlockIndex(4), span(0, 24))
    index.evict(6)
    assert len(index.ghosts) == 6
    index_with(index, span(0, 12))
    index.check([], Claims(100))
    assert len(index.ghosts) == 3
    assert index.trace(NS, span(0, 24)) == Trace(3, 6, branches=False, evicted_at=0.0)
    index.flush()
    assert index.trace(NS, span(0, 24)) == Trace(0, 0, branches=False, evicted_at=None)


@pytest.mark.parametrize(("ghosts", "kept"), [(None, 80), (3, 3), (0, 0)])
def test_ghosts_are_bounded_and_the_oldest_go_first(ghosts: int | None, kept: int) -> None:
    index = BlockIndex(1, ghosts=ghosts)
    for start in range(0, 1_000, 20):
        index_with(index, span(start, start + 20))
        index.advance(start)
        index.evict(20)
        index.check([], Claims(0))
        assert len(index.ghosts) <= (80 if ghosts is None else ghosts)
    assert len(index.ghosts) == kept
    newest = index.trace(NS, span(980, 1_000))
    assert (newest.known, newest.cached) == (min(20, kept), 0)
    assert index.trace(NS, span(0, 20)).known == 0


pages = st.lists(st.integers(0, 2), max_size=5)
stores = st.tuples(st.just("store"), pages)
evictions = st.tuples(st.just("evict"), st.integers(1, 4))


@settings(max_examples=200)
@given(history=st.lists(stores | evictions, max_size=25), asked=st.lists(pages, min_size=1, max_size=4))
def test_a_trace_says_what_a_list_of_all_that_happened_says(
    history: list[tuple[str, list[int] | int]], asked: list[list[int]]
) -> None:
    index = BlockIndex(2, ghosts=10_000)
    went: dict[
        tuple[int, ...], float | None
    ] = {}  # every prefix ever held: when it was evicted, if it is not held
    for now, (_, what) in enumerate(history):
        index.advance(float(now))
        if isinstance(what, int):
            index.evict(min(what, index.pages))
        else:
            index_with(index, np.repeat(toks(*what), 2))
        held = {tuple(tokens[::2]) for tokens in prefixes_in(index)}
        went |= dict.fromkeys(held)
        went |= {prefix: float(now) for prefix in went if prefix not in held and went[prefix] is None}
        index.check([], Claims(200))
    for prompt in asked:
        prefixes = [tuple(prompt[:length]) for length in range(1, len(prompt) + 1)]
        known = list(itertools.takewhile(lambda prefix: prefix in went, prefixes))
        cached = list(itertools.takewhile(lambda prefix: went.get(prefix, 0.0) is None, prefixes))
        branches = any(prefix[:-1] == known[-1] for prefix in went) if known else False
        evicted_at = went.get(prefixes[len(cached)]) if len(cached) < len(prefixes) else None
        expected = Trace(len(cached), len(known), branches, evicted_at)
        assert index.trace(NS, np.repeat(toks(*prompt), 2)) == expected


def prefixes_in(index: BlockIndex) -> list[tuple[int, ...]]:
    cache = PrefixCache(1, CacheConfig(index.page_size, "blocks"))
    cache._index = index
    return [tokens for _, tokens in prefixes_of(cache)]
