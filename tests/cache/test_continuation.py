"""What is known to have followed: for drafts, so it is a hint about tokens, of one's own namespace alone."""

from __future__ import annotations

import pytest

from cache.helpers import NS, OTHER, NewCache, begin, joined, span, store, toks
from sapwood.cache import Namespace, PrefixCache
from sapwood.cache.walk import MOST_BRANCHES
from sapwood.config import CacheConfig


def ahead(cache: PrefixCache, *tokens: int, limit: int = 100, namespace: Namespace = NS) -> list[int]:
    told: list[int] = cache.continuation(namespace, toks(*tokens), limit).tolist()
    return told


def test_what_followed_is_told_up_to_the_limit(new_cache: NewCache) -> None:
    cache = new_cache(64)
    store(cache, span(0, 40))
    assert ahead(cache, *range(10)) == list(range(10, 40))
    assert ahead(cache, *range(10), limit=7) == list(range(10, 17))
    assert ahead(cache, *range(40)) == []
    assert ahead(cache, *range(9), 5) == []
    assert ahead(cache, *range(41)) == []


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_it_goes_on_inside_a_page(new_cache: NewCache, page_size: int) -> None:
    cache = new_cache(64, page_size)
    store(cache, span(0, 64))
    for length in range(page_size, 64):
        assert ahead(cache, *range(length)) == list(range(length, 64))
        assert ahead(cache, *range(length - 1), 99) == []


def test_it_goes_on_over_the_edges_of_a_tree(new_cache: NewCache) -> None:
    cache = new_cache(64, 4)
    store(cache, span(0, 16))
    store(cache, joined(span(0, 8), span(50, 58)))
    store(cache, joined(span(0, 8), span(50, 54), span(70, 74)))
    assert ahead(cache, *range(8), 50, 51) == [52, 53, 70, 71, 72, 73]


def test_of_several_it_is_the_one_used_last(new_cache: NewCache) -> None:
    cache = new_cache(64)
    store(cache, joined(span(0, 8), span(20, 24)))
    store(cache, joined(span(0, 8), span(30, 34)))
    assert ahead(cache, *range(8)) == [30, 31, 32, 33]
    store(cache, joined(span(0, 8), span(20, 24)))
    assert ahead(cache, *range(8)) == [20, 21, 22, 23]
    assert ahead(cache, *range(8), 30) == [31, 32, 33]


def test_nobody_is_told_what_follows_in_another_namespace(new_cache: NewCache) -> None:
    cache = new_cache(64)
    store(cache, span(0, 20), OTHER)
    store(cache, span(0, 8))
    assert ahead(cache, *range(8)) == []
    assert ahead(cache, *range(4)) == [4, 5, 6, 7]
    assert ahead(cache, *range(8), namespace=OTHER) == list(range(8, 20))


def test_nothing_is_told_of_what_was_flushed(new_cache: NewCache) -> None:
    cache = new_cache(64)
    lease = begin(cache, span(0, 20))
    cache.flush()
    assert ahead(cache, *range(8)) == []
    cache.release(lease)
    assert ahead(cache, *range(8)) == []


def test_the_tree_tells_of_what_was_evicted() -> None:
    cache = PrefixCache(24, CacheConfig(1, "radix", "lru"))
    store(cache, span(0, 20))
    lease = cache.lease(NS, toks(99))
    cache.grow(lease, 16)
    assert cache.match(NS, span(0, 20)).tokens == 8
    assert ahead(cache, *range(12)) == list(range(12, 20))
    cache.release(lease)
    cache.check()


def test_where_very_many_things_followed_none_is_told() -> None:
    cache = PrefixCache(256, CacheConfig(1, "radix", "lru"))
    for each in range(MOST_BRANCHES + 1):
        store(cache, toks(1, 2, 100 + each, 5))
    assert ahead(cache, 1, 2) == []
    assert ahead(cache, 1, 2, 100) == [5]


def test_an_evicted_block_is_let_go_of() -> None:
    cache = PrefixCache(8, CacheConfig(1, "blocks"))
    store(cache, span(0, 8))
    lease = cache.lease(NS, toks(99))
    cache.grow(lease, 4)
    assert ahead(cache, 0, 1) == [2, 3]
    cache.release(lease)


def test_asking_changes_nothing(new_cache: NewCache) -> None:
    """Of two that are as old, the one asked about is not younger."""
    cache = new_cache(16)
    store(cache, span(0, 8))
    store(cache, span(20, 28))
    assert ahead(cache, 0) == list(range(1, 8))
    lease = cache.lease(NS, toks())
    cache.grow(lease, 4)
    assert cache.match(NS, span(0, 8)).tokens == 4
    assert cache.match(NS, span(20, 28)).tokens == 8
    cache.release(lease)


def test_a_lease_gives_back_what_it_needs_no_more(new_cache: NewCache) -> None:
    cache = new_cache(32, 4)
    lease = begin(cache, span(0, 10))
    cache.grow(lease, 40)
    table = lease.table.tolist()
    cache.shrink(lease, 13)
    assert (lease.covered, cache.books().private) == (16, 2)
    cache.shrink(lease, 0)
    assert (lease.covered, lease.committed, cache.books().private) == (8, 8, 0)
    cache.shrink(lease, 40)
    cache.grow(lease, 40)
    assert lease.table.tolist() == table, "a table that grows again is in order"
    cache.check()
    cache.release(lease)
