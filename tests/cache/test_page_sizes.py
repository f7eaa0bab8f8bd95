"""Only whole pages are shared: at every page size the tail of a sequence belongs to its lease alone."""

from __future__ import annotations

import random

import pytest

from cache.helpers import NS, OTHER, begin, joined, matched, pages_of, prefixes_of, span, store, toks
from sapwood.cache import PrefixCache
from sapwood.config import CacheConfig

pytestmark = pytest.mark.parametrize("size", [1, 8, 16, 32, 64])


def cache_of(pages: int, size: int) -> PrefixCache:
    return PrefixCache(pages, CacheConfig(page_size=size))


def test_a_hit_is_the_longest_multiple_of_the_page_within_what_is_shared(size: int) -> None:
    cache = cache_of(20, size)
    stored = span(0, 5 * size)
    store(cache, stored)
    for shared in range(0, 5 * size + 1, max(1, size // 8)):
        tokens = joined(stored[:shared], span(10_000, 10_000 + size))
        assert matched(cache, tokens) == shared // size * size
        assert cache.history(NS, tokens).known == shared // size * size
    cache.check()


@pytest.mark.parametrize("tail", [1, 3, 7, 63])
def test_a_tail_is_never_cached_and_never_shared(size: int, tail: int) -> None:
    tail %= size
    cache = cache_of(40, size)
    sequence = span(0, 3 * size + tail)
    first, second = begin(cache, sequence), begin(cache, sequence)
    cache.check()
    assert first.committed == second.committed == matched(cache, sequence) == 3 * size
    shared = set(first.table.tolist()) & set(second.table.tolist())
    assert shared == set(first.table[:3].tolist())
    assert len(first.private) == len(second.private) == (tail > 0)
    cache.release(first)
    cache.check()
    assert matched(cache, sequence) == 3 * size
    cache.release(second)
    assert (cache.books().tree, cache.books().free) == (3, 37)
    cache.check()


def test_a_page_is_committed_with_its_last_token_and_not_before(size: int) -> None:
    cache = cache_of(10, size)
    lease = cache.lease(NS, toks())
    for length in range(1, 2 * size + 2):
        cache.grow(lease, length)
        cache.commit(lease, span(0, length))
        assert lease.committed == matched(cache, span(0, 4 * size)) == length // size * size
    cache.check()


def test_sequences_that_differ_in_the_last_token_of_a_page_share_all_before_it(size: int) -> None:
    cache = cache_of(20, size)
    one = span(0, 3 * size)
    other = joined(span(0, 2 * size - 1), toks(-5), span(2 * size, 3 * size))
    store(cache, one)
    store(cache, other)
    cache.check()
    assert matched(cache, one) == matched(cache, other) == 3 * size
    assert cache.books().tree == 5
    assert len(set(pages_of(cache, one)) & set(pages_of(cache, other))) == 1


def test_random_traffic_under_pressure_keeps_whole_pages_only(size: int) -> None:
    cache = cache_of(24, size)
    rng = random.Random(size)
    for turn in range(150):
        cache.advance(0.9 * turn)
        head = span(0, rng.randrange(4 * size))
        lease = begin(cache, joined(head, span(5000, 5000 + rng.randrange(1, 4 * size))))
        cache.check()
        assert lease.matched % size == lease.committed % size == 0
        cache.release(lease)
    assert all(len(tokens) % size == 0 for _, tokens in prefixes_of(cache))
    squeeze = cache.lease(OTHER, toks())
    cache.grow(squeeze, 24 * size)
    cache.check()
    assert cache.books().tree == 0
