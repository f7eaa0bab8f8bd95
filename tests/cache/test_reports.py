"""Scenarios behind public bug reports on caches like this one, each with the outcome that would have been right."""

from __future__ import annotations

import random

import pytest

from cache.helpers import (
    NS,
    OTHER,
    NewCache,
    begin,
    joined,
    matched,
    nodes_of,
    pages_of,
    prefixes_of,
    radix_of,
    span,
    store,
    toks,
)
from sapwood.cache import Lease, PrefixCache
from sapwood.errors import OutOfPagesError


def squeeze(cache: PrefixCache) -> None:
    """Take all the room there is for a moment, so that everything evictable goes."""
    lease = cache.lease(OTHER, toks())
    cache.grow(lease, cache.room())
    cache.release(lease)


@pytest.mark.parametrize("page_size", [1, 16])
def test_free_cached_and_used_add_up_at_every_idle_moment(new_cache: NewCache, page_size: int) -> None:
    cache = new_cache(400 // page_size, page_size)
    rng = random.Random(7)
    for _ in range(300):
        start = rng.choice((0, 0, 0, 1000))
        leases = [begin(cache, span(start, start + rng.randrange(1, 60))) for _ in range(3)]
        for lease in leases:
            cache.release(lease)
        books = cache.books()
        assert (books.private, books.leased, books.free + books.tree) == (0, 0, books.capacity)
    cache.check()
    cache.flush()
    assert cache.books().free == cache.capacity_pages


def test_cancelled_between_lookup_and_allocation(new_cache: NewCache) -> None:
    cache = new_cache(20)
    store(cache, span(0, 10))
    waiting = [cache.lease(NS, span(0, 10)) for _ in range(50)]
    for lease in waiting:
        cache.release(lease)
    assert cache.books().leased == 0
    squeeze(cache)
    assert list(prefixes_of(cache)) == []


def test_an_edge_is_split_under_a_lease_that_ends_inside_it(new_cache: NewCache) -> None:
    cache = new_cache(200)
    store(cache, span(1, 101))
    first = cache.lease(NS, joined(span(1, 51), toks(999)))
    second = begin(cache, joined(span(1, 61), toks(998)))
    cache.check()
    cache.grow(first, 51)
    cache.commit(first, joined(span(1, 51), toks(999)))
    cache.release(first)
    cache.release(second)
    assert cache.books().leased == 0
    squeeze(cache)
    assert cache.books().tree == 0
    cache.check()


def test_twins_that_start_together_never_read_a_freed_page(new_cache: NewCache) -> None:
    cache = new_cache(260)
    twins = [cache.lease(NS, span(0, 100)) for _ in range(2)]
    for end in (32, 64, 96, 100):
        for twin in twins:
            cache.grow(twin, end)
            cache.commit(twin, span(0, end))
            cache.check()
    flood = cache.lease(OTHER, toks())
    cache.grow(flood, cache.room())
    for twin in twins:
        assert twin.table.tolist() == pages_of(cache, span(0, 100))
        assert not set(twin.table.tolist()) & set(flood.table.tolist())


def test_dropped_after_two_chunks(new_cache: NewCache) -> None:
    cache = new_cache(300)
    lease = cache.lease(NS, span(0, 256))
    for end in (32, 64):
        cache.grow(lease, 256)
        cache.commit(lease, span(0, end))
    cache.release(lease)
    cache.check()
    for other in range(30):
        store(cache, span(1000 + 40 * other, 1040 + 40 * other))
        cache.check()
    found = matched(cache, span(0, 256))
    assert found in range(65)
    assert len(set(pages_of(cache, span(0, 256))) & set(cache._pool.free_pages.tolist())) == 0


def test_many_finish_in_one_step_with_every_remainder_of_a_page(new_cache: NewCache) -> None:
    cache = new_cache(200, 16)
    leases = [begin(cache, joined(span(0, 32), span(100 * n, 100 * n + n))) for n in range(1, 33)]
    for lease in leases:
        cache.release(lease)
    cache.check()
    assert cache.books().private == 0


def test_counters_equal_a_recount_after_unaligned_traffic(new_cache: NewCache) -> None:
    cache = new_cache(60, 16)
    rng = random.Random(3)
    for _ in range(500):
        start = rng.randrange(4) * 1000
        store(cache, joined(span(start, start + rng.randrange(100)), span(0, rng.randrange(40))))
    cache.check()
    assert cache.books().tree == len(list(prefixes_of(cache)))


def test_branches_do_not_keep_the_first_array_alive() -> None:
    cache = PrefixCache(11_000)
    store(cache, span(0, 10_000))
    for branch in range(400):
        store(cache, joined(span(0, 25 * branch), toks(-1 - branch)))
    greedy = cache.lease(OTHER, toks())
    cache.grow(greedy, 10_600)
    held = sum(node.tokens.capacity + node.pages.capacity for node in nodes_of(cache))
    assert held <= 2 * 2 * cache.books().tree + 32 * len(nodes_of(cache))
    cache.check()


def test_many_sequences_with_one_long_prefix_hold_little_more_than_their_tokens() -> None:
    cache = PrefixCache(11_000)
    prefix = span(0, 1000)
    for branch in range(100):
        store(cache, joined(prefix, span(5000 + 100 * branch, 5100 + 100 * branch)))
    assert cache.books().tree == 11_000
    assert sum(node.tokens.capacity for node in nodes_of(cache)) < 2 * 11_000


def test_a_recycled_page_is_not_found_under_its_old_tokens(new_cache: NewCache) -> None:
    cache = new_cache(8)
    store(cache, span(0, 4))
    store(cache, span(50, 54))
    long = begin(cache, span(90, 94))
    assert matched(cache, span(0, 4)) == 0
    assert not set(pages_of(cache, span(0, 4)) + pages_of(cache, span(50, 54))) & set(long.table.tolist())
    cache.check()


def test_both_an_explicit_cancel_and_a_lost_client(new_cache: NewCache) -> None:
    cache = new_cache(20)
    keeper, victim = begin(cache, span(0, 6)), begin(cache, span(0, 8))
    for _ in range(3):
        cache.release(victim)
    assert cache.books().leased == 6
    assert keeper.live
    cache.check()


def test_random_hang_ups_in_a_nearly_full_pool(new_cache: NewCache) -> None:
    cache = new_cache(60)
    rng = random.Random(11)
    running: list[tuple[Lease, int, int]] = []
    for _ in range(600):
        if running and rng.random() < 0.4:
            cache.release(running.pop(rng.randrange(len(running)))[0])
        elif running and rng.random() < 0.5:
            lease, branch, length = running.pop(rng.randrange(len(running)))
            grown = joined(span(0, 10), span(branch, branch + length + 3))
            try:
                cache.grow(lease, len(grown))
            except OutOfPagesError:
                cache.release(lease)
                continue
            cache.commit(lease, grown)
            running.append((lease, branch, length + 3))
        else:
            running.append((cache.lease(NS, span(0, 10)), 100 * rng.randrange(1, 6), 0))
        cache.check()
    for lease, _, _ in running:
        cache.release(lease)
    squeeze(cache)
    assert (cache.books().free, cache.books().tree, cache.books().private) == (60, 0, 0)


def test_a_preempted_sequence_finds_its_work_again(new_cache: NewCache) -> None:
    cache = new_cache(40)
    lease = begin(cache, span(0, 30))
    cache.release(lease)
    again = cache.lease(NS, span(0, 30), limit=29)
    assert again.matched == 29
    cache.check()


def test_evicted_between_lookup_and_lease(new_cache: NewCache) -> None:
    cache = new_cache(10)
    store(cache, span(0, 10))
    seen = cache.match(NS, span(0, 10))
    other = begin(cache, span(70, 76))
    lease = cache.lease(NS, span(0, 10))
    assert (seen.tokens, lease.matched) == (10, 4)
    assert not set(lease.table.tolist()) & set(other.table.tolist())
    cache.check()


def test_flush_while_a_stream_runs_leaves_nothing_old_behind(new_cache: NewCache) -> None:
    cache = new_cache(40)
    stream = begin(cache, span(0, 10))
    done = cache.flush()
    assert (done.flushed_tokens, done.kept_tokens) == (0, 10)
    fresh = cache.lease(NS, span(0, 10))
    assert fresh.matched == 0
    cache.grow(stream, 12)
    cache.commit(stream, span(0, 12))
    assert matched(cache, span(0, 12)) == 0
    for lease in (stream, fresh):
        cache.release(lease)
    assert cache.books().free == 40


def test_flush_right_after_the_last_release_always_works(new_cache: NewCache) -> None:
    cache = new_cache(10)
    for _ in range(100):
        store(cache, span(0, 10))
        assert cache.flush().flushed_tokens == 10
    cache.check()


def test_churn_leaves_as_many_nodes_as_the_live_branches_need() -> None:
    cache = PrefixCache(1_000)
    rng = random.Random(5)
    for _ in range(3_000):
        cut = rng.randrange(1, 50)
        store(cache, joined(span(0, cut), span(1000 + rng.randrange(9000), 10_020)[:20]))
    leaves = sum(node.living == 0 for node in nodes_of(cache))
    assert len(nodes_of(cache)) <= 3 * leaves
    assert len(radix_of(cache).order) == leaves
    cache.check()
