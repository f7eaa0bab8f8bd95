from __future__ import annotations

import pytest

from cache.helpers import NS, begin, matched, span, store, toks
from sapwood.cache import PrefixCache
from sapwood.cache.no_index import NoIndex
from sapwood.config import CacheConfig
from sapwood.errors import BooksError, OutOfPagesError


def cache_without_index() -> PrefixCache:
    return PrefixCache(8, CacheConfig(prefix_index="none"))


def test_nothing_is_found_and_nothing_is_kept() -> None:
    cache = cache_without_index()
    store(cache, span(0, 5))
    assert matched(cache, span(0, 5)) == 0
    assert cache.books().free == 8
    cache.check()


def test_a_lease_keeps_all_its_pages_private() -> None:
    cache = cache_without_index()
    lease = begin(cache, span(0, 5))
    assert (lease.matched, lease.committed, lease.covered) == (0, 0, 5)
    assert cache.books().private == 5
    assert cache.room() == 3
    cache.check()


def test_there_is_nothing_to_evict_or_flush() -> None:
    cache = cache_without_index()
    lease = begin(cache, span(0, 5))
    with pytest.raises(OutOfPagesError, match="3 are free and 0 can be evicted"):
        cache.grow(cache.lease(NS, toks()), 4)
    assert cache.flush().flushed_tokens == 0
    assert lease.covered == 5
    with pytest.raises(BooksError, match="holds none"):
        NoIndex().evict(1)
