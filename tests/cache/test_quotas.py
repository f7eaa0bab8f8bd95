"""Quotas: what a tenant may keep, whose pages go when it is over, and what stays whatever its quota says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cache.helpers import NewCache, begin, joined, matched, radix_of, span, store
from sapwood.cache import Namespace, PrefixCache
from sapwood.config import CacheConfig, EvictionName
from sapwood.errors import BooksError

A, SALTED, B = Namespace("m", tenant="a"), Namespace("m", tenant="a", salt="s"), Namespace("m", tenant="b")
POLICIES: tuple[EvictionName, ...] = ("lru", "lfu", "fifo", "mru", "filo", "slru", "priority")


@pytest.fixture
def limited(new_cache: NewCache) -> Callable[..., PrefixCache]:
    """Makes caches in which tenant a may keep so many tokens."""

    def make(pages: int, most: int, page_size: int = 1) -> PrefixCache:
        cache: PrefixCache = new_cache(pages, page_size)
        cache.limit({"a": most})
        return cache

    return make


def test_a_tenant_keeps_no_more_than_its_quota_and_the_longest_prefix_that_fits(
    limited: Callable[..., PrefixCache],
) -> None:
    cache = limited(100, 10)
    store(cache, span(0, 30), A)
    assert matched(cache, span(0, 30), A) == 10
    assert (cache.books().tree, cache.books().evicted_tokens) == (10, 20)
    cache.check()


def test_while_it_runs_a_request_keeps_all_that_it_reads(limited: Callable[..., PrefixCache]) -> None:
    cache = limited(100, 10)
    store(cache, span(500, 508), A)
    running = begin(cache, span(0, 30), A)
    cache.check()
    assert matched(cache, span(0, 30), A) == 30
    assert matched(cache, span(500, 508), A) == 8, "nobody needs the room yet"
    cache.release(running)
    assert cache.books().tree == 10
    cache.check()


def test_all_namespaces_of_a_tenant_share_its_quota(limited: Callable[..., PrefixCache]) -> None:
    cache = limited(100, 10)
    store(cache, span(0, 8), A)
    store(cache, span(0, 8), SALTED)
    assert (matched(cache, span(0, 8), A), matched(cache, span(0, 8), SALTED)) == (2, 8)
    cache.check()


def test_a_tenant_that_wants_more_than_its_quota_takes_its_own_pages_first(
    limited: Callable[..., PrefixCache],
) -> None:
    cache = limited(40, 20)
    store(cache, span(0, 20), B)  # The least recently used: without a quota it would go.
    store(cache, span(100, 120), A)
    lease = cache.lease(A, span(200, 220))
    cache.grow(lease, 20)
    assert (matched(cache, span(0, 20), B), matched(cache, span(100, 120), A)) == (20, 0)
    cache.check()


def test_a_tenant_within_its_quota_shares_the_pool_like_any_other(
    limited: Callable[..., PrefixCache],
) -> None:
    cache = limited(40, 30)
    store(cache, span(0, 20), B)
    store(cache, span(100, 110), A)
    store(cache, span(200, 220), A)
    assert (matched(cache, span(0, 20), B), matched(cache, span(100, 110), A)) == (10, 10)
    cache.check()


def test_who_needs_room_takes_first_what_others_have_above_their_quotas(
    limited: Callable[..., PrefixCache],
) -> None:
    cache = limited(40, 10)
    store(cache, span(0, 10), B)
    store(cache, span(100, 110), A)
    running = begin(cache, span(200, 220), A)
    cache.grow(cache.lease(B, span(300, 310)), 10)
    assert (matched(cache, span(0, 10), B), matched(cache, span(100, 110), A)) == (10, 0)
    cache.check()
    cache.release(running)
    assert matched(cache, span(200, 220), A) == 10
    cache.check()


def test_what_is_leased_counts_and_stays(limited: Callable[..., PrefixCache]) -> None:
    """A pin is a lease: it takes up its tenant's quota and is not evicted for it."""
    cache = limited(100, 10)
    pin = begin(cache, span(0, 9), A)
    store(cache, span(100, 105), A)
    assert (matched(cache, span(0, 9), A), matched(cache, span(100, 105), A)) == (9, 1)
    cache.check()
    beyond = begin(cache, span(200, 230), A)
    store(cache, span(100, 105), A)
    assert (matched(cache, span(200, 230), A), matched(cache, span(100, 105), A)) == (30, 0)
    cache.release(pin)
    cache.release(beyond)
    cache.check()
    assert cache.books().tree == 10


def test_a_quota_counts_whole_pages_and_may_be_nothing(limited: Callable[..., PrefixCache]) -> None:
    cache = limited(20, 11, 4)
    store(cache, span(0, 16), A)
    assert matched(cache, span(0, 16), A) == 8
    assert cache.quota(SALTED) == 8
    assert cache.quota(B) is None
    nothing = limited(20, 3, 4)
    store(nothing, span(0, 16), A)
    assert nothing.books().free == 20
    nothing.check()


@pytest.mark.parametrize("policy", POLICIES)
def test_within_a_tenant_the_policy_says_what_goes(policy: EvictionName) -> None:
    """Each goes as it would if the tenant had a pool of the size of its quota to itself.

    The default policy is left out: it learns from all that share the pool.
    """
    shared, alone = (PrefixCache(pages, CacheConfig(eviction_policy=policy)) for pages in (2000, 30))
    shared.limit({"a": 30})
    for turn in range(40):
        for cache in (shared, alone):
            cache.advance(7.0 * turn)
            start = 100 * (turn * turn % 7)
            # The room is made before it is used, as it is for one that runs in the small pool.
            lease = cache.lease(A, span(start, start + 10))
            cache.grow(lease, 10)
            if cache is shared:
                cache._evict(lease.account.surplus() if lease.account else 0, lease.account)
            cache.commit(lease, span(start, start + 10))
            if turn % 9 == 0:
                cache.retain(lease, 50, seconds=100.0)
            cache.release(lease)
            cache.check()
        kept = [
            [matched(cache, span(100 * n, 100 * n + 10), A) for n in range(7)] for cache in (shared, alone)
        ]
        assert kept[0] == kept[1], turn
        store(shared, span(1000 + 10 * turn, 1010 + 10 * turn), B)


def test_what_is_retained_goes_last_but_a_quota_holds() -> None:
    cache = PrefixCache(100, CacheConfig(eviction_policy="lru"))
    cache.limit({"a": 10})
    lease = begin(cache, span(0, 8), A)
    cache.retain(lease, 50)
    cache.release(lease)
    for start in (100, 200):
        store(cache, span(start, start + 8), A)
    assert [matched(cache, span(n, n + 8), A) for n in (0, 100, 200)] == [8, 0, 2]
    lease = begin(cache, span(300, 308), A)
    cache.retain(lease, 60)
    cache.release(lease)
    assert [matched(cache, span(n, n + 8), A) for n in (0, 300)] == [2, 8]
    cache.check()


def test_a_retention_that_has_ended_keeps_nothing_within_a_tenant_either() -> None:
    cache = PrefixCache(10, CacheConfig(eviction_policy="lru"))
    cache.limit({"a": 10})
    lease = begin(cache, span(0, 5), A)
    cache.retain(lease, 50, seconds=10.0)
    cache.release(lease)
    store(cache, span(100, 105), A)
    cache.advance(20.0)
    cache.grow(cache.lease(A, span(200, 200)), 2)
    assert (matched(cache, span(0, 5), A), matched(cache, span(100, 105), A)) == (3, 5)
    cache.check()


def test_flushed_pages_that_are_still_read_count_until_they_are_let_go(
    limited: Callable[..., PrefixCache],
) -> None:
    cache = limited(60, 10)
    old = begin(cache, span(0, 8), A)
    cache.flush()
    cache.check()
    store(cache, span(100, 108), A)
    assert matched(cache, span(100, 108), A) == 2
    cache.release(old)
    cache.check()
    store(cache, span(100, 108), A)
    assert matched(cache, span(100, 108), A) == 8
    cache.check()


def test_evicted_for_a_quota_is_evicted() -> None:
    cache = PrefixCache(100, CacheConfig())
    cache.limit({"a": 5})
    store(cache, joined(span(0, 5), span(50, 60)), A)
    cache.advance(3.0)
    history = cache.history(A, joined(span(0, 5), span(50, 60)))
    assert (history.cached, history.known, history.evicted_seconds_ago) == (5, 15, 3.0)


def test_trimming_one_tenant_looks_at_no_leaf_of_another() -> None:
    cache = PrefixCache(5000, CacheConfig(eviction_policy="lru"))
    cache.limit({"a": 10})
    for start in range(0, 20_000, 10):
        store(cache, span(start, start + 2), B)
    before = radix_of(cache).touched
    for start in range(0, 1000, 10):
        store(cache, span(start, start + 5), A)
    # Of the leaves of five pages two fit, and a part of a third: each store evicts one, and perhaps a part.
    assert radix_of(cache).touched - before <= 2 * 100
    cache.check()


def test_tenants_are_limited_before_anything_is_cached(new_cache: NewCache) -> None:
    cache = new_cache(10)
    store(cache, span(0, 4), A)
    with pytest.raises(BooksError, match="before anything is cached"):
        cache.limit({"a": 2})


@pytest.mark.parametrize("index", ["radix", "blocks"])
@pytest.mark.parametrize("field", ["pages", "leased", "private", "leases"])
def test_a_count_that_is_wrong_is_found(index: str, field: str) -> None:
    cache = PrefixCache(20, CacheConfig(prefix_index=index))  # type: ignore[arg-type]
    cache.limit({"a": 15})
    lease = begin(cache, span(0, 4), A)
    cache.grow(lease, 6)
    store(cache, span(100, 104), A)
    cache.check()
    (account,) = cache._accounts
    setattr(account, field, getattr(account, field) + 1)
    with pytest.raises(BooksError, match="is counted"):
        cache.check()


def test_without_quotas_nothing_is_counted_by_tenant(new_cache: NewCache) -> None:
    cache = new_cache(20)
    lease = begin(cache, span(0, 4), A)
    assert lease.account is None
    assert list(cache._accounts) == []
