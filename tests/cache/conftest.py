from __future__ import annotations

import pytest

from cache.helpers import NewCache
from sapwood.cache import PrefixCache
from sapwood.config import CacheConfig, IndexName


@pytest.fixture(params=["radix", "blocks"])
def prefix_index(request: pytest.FixtureRequest) -> IndexName:
    """Each way to the same promise."""
    index: IndexName = request.param
    return index


@pytest.fixture
def new_cache(prefix_index: IndexName) -> NewCache:
    """Makes caches of so many pages, of one token each unless told otherwise, that evict by LRU."""

    def make(capacity_pages: int, page_size: int = 1) -> PrefixCache:
        return PrefixCache(capacity_pages, CacheConfig(page_size, prefix_index, "lru"))

    return make
