"""Why not more of a prompt is cached: the same answers from every index."""

from __future__ import annotations

import pytest

from cache.helpers import (
    NS,
    NewCache,
    begin,
    joined,
    matched,
    nodes_of,
    prefixes_of,
    radix_of,
    span,
    store,
    toks,
)
from sapwood.cache import History, Namespace, PrefixCache
from sapwood.cache.keys import Tokens
from sapwood.config import CacheConfig, EvictionName

SIZES = pytest.mark.parametrize("size", [1, 16])


def history(cache: PrefixCache, *tokens: int) -> History:
    """Of pages that repeat one token each."""
    return cache.history(NS, pages(cache.page_size, *tokens))


def pages(size: int, *tokens: int) -> Tokens:
    return toks(*tokens).repeat(size)


@SIZES
def test_never_seen(new_cache: NewCache, size: int) -> None:
    cache = new_cache(20, size)
    assert history(cache, 1, 2) == History(0, 0, branches=False, evicted_seconds_ago=None, elsewhere=0)
    store(cache, pages(size, 7, 8))
    assert history(cache, 1, 2) == History(0, 0, branches=False, evicted_seconds_ago=None, elsewhere=0)
    assert history(cache) == History(0, 0, branches=False, evicted_seconds_ago=None, elsewhere=0)


@SIZES
def test_diverged_inside_a_stretch(new_cache: NewCache, size: int) -> None:
    cache = new_cache(20, size)
    store(cache, pages(size, 1, 2, 3, 4))
    assert history(cache, 1, 2, 9) == History(2 * size, 2 * size, True, None, 0)


@SIZES
def test_diverged_where_others_branch(new_cache: NewCache, size: int) -> None:
    cache = new_cache(20, size)
    store(cache, pages(size, 1, 2, 3))
    store(cache, pages(size, 1, 2, 4))
    assert history(cache, 1, 2, 9) == History(2 * size, 2 * size, True, None, 0)


@SIZES
def test_longer_than_all_that_is_known(new_cache: NewCache, size: int) -> None:
    cache = new_cache(20, size)
    store(cache, pages(size, 1, 2, 3))
    assert history(cache, 1, 2, 3, 4, 5) == History(3 * size, 3 * size, False, None, 0)


def test_a_part_of_a_page_is_never_known(new_cache: NewCache) -> None:
    cache = new_cache(20, 16)
    store(cache, span(0, 40))
    assert cache.history(NS, span(0, 40)) == History(32, 32, False, None, 0)
    assert cache.history(NS, joined(span(0, 20), span(70, 90))) == History(16, 16, True, None, 0)


@SIZES
def test_evicted_and_for_how_long(new_cache: NewCache, size: int) -> None:
    cache = new_cache(4, size)
    cache.advance(100.0)
    store(cache, pages(size, 1, 2, 3, 4))
    cache.advance(110.0)
    begin(cache, pages(size, 9, 9))
    cache.advance(150.0)
    assert history(cache, 1, 2, 3, 4) == History(2 * size, 4 * size, False, 40.0, 0)
    assert history(cache, 1, 2, 3, 5) == History(2 * size, 3 * size, True, 40.0, 0)
    assert history(cache, 1, 2, 5) == History(2 * size, 2 * size, True, None, 0)


@SIZES
def test_evicted_page_by_page_the_first_one_missing_counts(new_cache: NewCache, size: int) -> None:
    cache = new_cache(4, size)
    store(cache, pages(size, 1, 2, 3, 4))
    greedy = cache.lease(NS, pages(size, 9))
    for gone in range(1, 5):
        cache.advance(10.0 * gone)
        cache.grow(greedy, gone * size)
        cache.check()
        told = history(cache, 1, 2, 3, 4)
        assert (told.cached, told.known, told.evicted_seconds_ago) == ((4 - gone) * size, 4 * size, 0.0)
    cache.advance(45.0)
    assert history(cache, 1, 2, 3, 4).evicted_seconds_ago == 5.0


def test_what_came_back_is_no_longer_told_as_evicted(new_cache: NewCache) -> None:
    cache = new_cache(4)
    store(cache, toks(1, 2, 3, 4))
    lease = begin(cache, toks(9, 9, 9, 9))
    cache.release(lease)
    store(cache, toks(1, 2, 3, 4))
    assert history(cache, 1, 2, 3, 4) == History(4, 4, False, None, 0)
    cache.check()


@SIZES
def test_elsewhere_is_under_another_adapter_of_the_same_tenant_and_no_secret_salt(
    new_cache: NewCache, size: int
) -> None:
    cache = new_cache(40, size)
    store(cache, pages(size, 1, 2), Namespace("m", tenant="t", salt="a"))
    store(cache, pages(size, 1, 2, 3), Namespace("m", tenant="t", adapter="b"))
    store(cache, pages(size, 1, 2, 3, 4), Namespace("m", tenant="other"))
    asked = pages(size, 1, 2, 3, 4)
    assert cache.history(Namespace("m", tenant="t"), asked).elsewhere == 3 * size
    assert cache.history(Namespace("m", tenant="t", adapter="b"), asked).elsewhere == 0
    assert cache.history(Namespace("m", tenant="t", adapter="b", salt="a"), asked).elsewhere == 3 * size
    assert cache.history(Namespace("m", tenant="other"), asked).elsewhere == 0
    assert cache.history(Namespace("m"), asked).elsewhere == 0


@pytest.mark.parametrize("policy", ["lru", "lfu", "default"])
def test_asking_changes_neither_books_nor_order_nor_hits(policy: EvictionName) -> None:
    def run(asks: int) -> list[object]:
        cache = PrefixCache(12, CacheConfig(eviction_policy=policy))
        for start in (0, 10, 20, 30):
            store(cache, span(start, start + 4))
        before = [(id(node), node.used, node.hits, node.rank) for node in nodes_of(cache)]
        books, ghosts = cache.books(), radix_of(cache).ghosts._nodes
        for start in range(0, 40, 10):
            for _ in range(asks):
                cache.history(NS, span(start, start + 4))
                cache.history(NS, joined(span(start, start + 2), toks(99)))
                cache.history(Namespace("m", salt="new"), span(start, start + 4))
        assert (cache.books(), radix_of(cache).ghosts._nodes) == (books, ghosts)
        assert [(id(n), n.used, n.hits, n.rank) for n in nodes_of(cache)] == before
        cache.check()
        begin(cache, span(90, 96))
        return sorted(prefixes_of(cache), key=repr)

    assert run(0) == run(3)


def test_asking_never_makes_room_of_what_others_wrote(new_cache: NewCache) -> None:
    cache = new_cache(10)
    lease = cache.lease(NS, span(0, 5))
    cache.grow(lease, 5)
    assert cache.history(NS, span(0, 5)).known == 0
    cache.commit(lease, span(0, 3))
    assert cache.history(NS, span(0, 5)) == History(3, 3, False, None, 0)
    assert matched(cache, span(0, 5)) == 3
