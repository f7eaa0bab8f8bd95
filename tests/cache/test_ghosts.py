"""What is evicted is remembered for a while, within bounds, and never read."""

from __future__ import annotations

import random

import pytest

from cache.helpers import NS, begin, joined, matched, nodes_of, radix_of, span, store, toks
from sapwood.cache import Namespace, PrefixCache
from sapwood.cache.ghosts import GHOST_POOLS
from sapwood.cache.node import Node
from sapwood.config import CacheConfig, EvictionName
from sapwood.errors import BooksError


def evict(cache: PrefixCache, pages: int) -> None:
    cache._pool.free(radix_of(cache).evict(pages))
    cache.check()


def all_nodes(cache: PrefixCache) -> list[Node]:
    return [node for root in radix_of(cache).roots.values() for node in root.subtree() if node is not root]


def ghosts_of(cache: PrefixCache) -> list[Node]:
    return [node for node in all_nodes(cache) if node.is_ghost]


def known(cache: PrefixCache, tokens: int, start: int = 0) -> int:
    return cache.history(NS, span(start, start + tokens)).known


def test_a_ghost_never_matches_and_never_gives_a_page() -> None:
    cache = PrefixCache(40)
    store(cache, span(0, 20))
    evict(cache, 15)
    assert (matched(cache, span(0, 20)), known(cache, 20)) == (5, 20)
    lease = cache.lease(NS, span(0, 20))
    assert (lease.matched, lease.table.tolist()) == (5, nodes_of(cache)[0].pages.view.tolist())
    cache.check()
    assert cache.room_beside(NS, span(0, 20)) == cache.room() == 35
    cache.release(lease)
    evict(cache, 5)
    lease = cache.lease(NS, span(0, 20))
    assert (lease.matched, cache.books().tree, cache.books().free) == (0, 0, 40)
    with pytest.raises(BooksError, match="none is evictable"):
        radix_of(cache).evict(1)


def test_what_is_below_a_ghost_is_a_ghost_too_and_comes_back_in_order() -> None:
    cache = PrefixCache(40)
    store(cache, span(0, 8))
    store(cache, joined(span(0, 4), span(50, 54)))
    evict(cache, 12)
    assert len(ghosts_of(cache)) == 3
    for end in (2, 4, 8):
        store(cache, span(0, end))
        cache.check()
        assert (matched(cache, span(0, 8)), known(cache, 8)) == (end, 8)
    assert cache.history(NS, joined(span(0, 4), span(50, 54))).known == 8


def test_a_refilled_stretch_has_its_past_back() -> None:
    cache = PrefixCache(40, CacheConfig(eviction_policy="lfu"))
    for _ in range(3):
        store(cache, span(0, 10))
    evict(cache, 10)
    lease = begin(cache, span(0, 10))
    assert [node.hits for node in nodes_of(cache)] == [4]
    cache.release(lease)
    store(cache, span(50, 60))
    begin(cache, span(70, 95))
    cache.check()
    assert (matched(cache, span(0, 10)), matched(cache, span(50, 60))) == (10, 5)


def test_a_retention_that_still_holds_is_back_with_its_pages() -> None:
    cache = PrefixCache(20, CacheConfig(eviction_policy="lru"))
    lease = begin(cache, span(0, 10))
    cache.retain(lease, 50, seconds=100.0)
    cache.release(lease)
    evict(cache, 10)
    store(cache, span(0, 10))
    store(cache, span(50, 60))
    evict(cache, 10)
    assert (matched(cache, span(0, 10)), matched(cache, span(50, 60))) == (10, 0)


def test_a_lease_that_asks_for_a_ghost_and_fills_nothing_is_no_use_of_it() -> None:
    cache = PrefixCache(40)
    store(cache, span(0, 10))
    evict(cache, 10)
    for _ in range(5):
        cache.release(cache.lease(NS, span(0, 10)))
        cache.check()
    assert [ghost.hits for ghost in ghosts_of(cache)] == [1]


def test_the_oldest_are_forgotten_first() -> None:
    cache = PrefixCache(10)
    for number in range(20):
        store(cache, span(100 * number, 100 * number + 10))
        cache.check()
        remembered = [at for at in range(number) if known(cache, 10, 100 * at)]
        assert remembered == list(range(max(0, number - GHOST_POOLS), number))


def test_a_lease_keeps_the_ghosts_that_it_is_about_to_fill_from_being_forgotten() -> None:
    cache = PrefixCache(10)
    for number in range(GHOST_POOLS + 1):
        store(cache, span(100 * number, 100 * number + 10))
    assert known(cache, 10) == 10
    lease = cache.lease(NS, span(0, 10))
    cache.grow(lease, 10)
    cache.check()
    assert (known(cache, 10), known(cache, 10, 100)) == (10, 0)
    cache.commit(lease, span(0, 10))
    assert [node.hits for node in nodes_of(cache)] == [2]


def test_none_is_forgotten_before_those_below_it() -> None:
    cache = PrefixCache(8, CacheConfig(page_size=2))
    rng = random.Random(4)
    for turn in range(300):
        start = 100 * rng.randrange(3)
        store(cache, joined(span(start, start + 2 * rng.randrange(1, 5)), span(7, 7 + rng.randrange(8)))[:16])
        cache.check()
        if turn % 7 == 0:
            evict(cache, rng.randrange(1, cache.books().tree + 1))


@pytest.mark.parametrize("policy", ["lru", "mru", "filo", "priority", "default"])
@pytest.mark.parametrize("page_size", [1, 4])
def test_tokens_and_nodes_are_bounded_whatever_happens(policy: EvictionName, page_size: int) -> None:
    capacity = 30
    cache = PrefixCache(capacity, CacheConfig(page_size=page_size, eviction_policy=policy))
    rng = random.Random(9)
    leases = []
    for turn in range(1200):
        cache.advance(0.7 * turn)
        start = 1000 * rng.randrange(60)
        tokens = joined(span(start, start + rng.randrange(1, 10)), span(3, 3 + rng.randrange(page_size * 20)))
        lease = cache.lease(Namespace("m", salt=str(rng.randrange(3))), tokens)
        if cache.room() >= len(tokens) - lease.covered + page_size:
            cache.grow(lease, len(tokens))
            cache.commit(lease, tokens)
            cache.retain(lease, rng.choice((0, 0, 10, 60)), seconds=20.0, start=rng.randrange(len(tokens)))
        leases.append(lease)
        if len(leases) > 2:
            cache.release(leases.pop(rng.randrange(3)))
        if evictable := cache.books().evictable:
            # One page at a time and from ever other leaves, so that many have lost a part.
            evict(cache, min(evictable, rng.choice((1, 1, 1, 5))))
        tokens_kept = sum(node.tokens.size for node in all_nodes(cache)) - cache.books().cached_tokens
        # Besides what is counted there may be the tail of the one leaf that is being trimmed.
        assert tokens_kept <= (GHOST_POOLS + 1) * capacity * page_size
        assert len(ghosts_of(cache)) <= capacity
    assert len(radix_of(cache).roots) == 3


def test_the_ghost_of_a_leaf_is_counted_as_soon_as_another_leaf_is_trimmed() -> None:
    cache = PrefixCache(40, CacheConfig(eviction_policy="mru"))
    for start in (0, 100):
        store(cache, span(start, start + 10))
        evict(cache, 3)
    assert [ghost.tokens.size for ghost in ghosts_of(cache)] == [3]
    assert sorted(node.pages.size for node in nodes_of(cache)) == [7, 7]
    assert (known(cache, 10), known(cache, 10, 100)) == (10, 10)
    assert (matched(cache, span(0, 10)), matched(cache, span(100, 110))) == (7, 7)


def test_taking_a_leaf_page_by_page_leaves_one_ghost() -> None:
    cache = PrefixCache(40)
    store(cache, span(0, 30))
    for _ in range(30):
        evict(cache, 1)
    assert [ghost.tokens.size for ghost in ghosts_of(cache)] == [30]


def test_flushing_forgets_all_ghosts() -> None:
    cache = PrefixCache(40)
    store(cache, span(0, 10))
    evict(cache, 10)
    store(cache, span(50, 60))
    evict(cache, 4)
    cache.flush()
    cache.check()
    assert all_nodes(cache) == []
    assert (known(cache, 10), known(cache, 10, 50)) == (0, 0)
    store(cache, span(0, 10))
    cache.check()
    assert [node.hits for node in nodes_of(cache)] == [1]


def test_a_namespace_of_ghosts_alone_is_dropped_with_the_last_of_them() -> None:
    cache = PrefixCache(10)
    other = Namespace("other")
    store(cache, span(0, 10), other)
    for number in range(1, GHOST_POOLS + 3):
        store(cache, span(100 * number, 100 * number + 10))
        cache.check()
    assert other not in radix_of(cache).roots


def test_ghosts_of_a_leased_path_hang_on_while_it_is_read() -> None:
    cache = PrefixCache(40)
    store(cache, span(0, 10))
    evict(cache, 5)
    lease = cache.lease(NS, toks(0, 1, 2))
    cache.check()
    assert known(cache, 10) == 10
    cache.release(lease)
    cache.check()
    assert known(cache, 10) == 10
