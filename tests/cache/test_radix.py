"""The tree itself: what is found, how edges split and join, and that looking changes nothing."""

from __future__ import annotations

import pytest

from cache.helpers import (
    NS,
    OTHER,
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
from sapwood.cache import Namespace, PrefixCache
from sapwood.config import CacheConfig, EvictionName

LRU = CacheConfig(eviction_policy="lru")


def test_what_was_stored_is_found_and_so_is_each_prefix_of_it() -> None:
    cache = PrefixCache(10)
    store(cache, toks(1, 2, 3))
    assert [matched(cache, span(1, end)) for end in (1, 2, 3, 4, 5)] == [0, 1, 2, 3, 3]
    assert cache.books().tree == cache.books().evictable == 3


def test_separate_sequences_add_up_and_share_no_page() -> None:
    cache = PrefixCache(10)
    store(cache, toks(1, 2, 3))
    store(cache, toks(4, 5))
    assert cache.books().tree == 5
    assert len({*pages_of(cache, toks(1, 2, 3)), *pages_of(cache, toks(4, 5))}) == 5


@pytest.mark.parametrize("page_size", [1, 2])
def test_a_branch_splits_the_edge_and_stores_only_what_is_new(page_size: int) -> None:
    cache = PrefixCache(20, CacheConfig(page_size=page_size))
    store(cache, span(1, 9))
    long = pages_of(cache, span(1, 9))
    store(cache, toks(1, 2, 9, 10))
    assert cache.books().cached_tokens == 10
    assert pages_of(cache, span(1, 9)) == long
    assert pages_of(cache, toks(1, 2, 9, 10))[: 2 // page_size] == long[: 2 // page_size]
    assert matched(cache, toks(1, 2, 9, 10)) == 4


@pytest.mark.parametrize(("page_size", "length"), [(1, 5), (2, 5), (4, 6), (4, 3), (16, 33)])
def test_only_whole_pages_match(page_size: int, length: int) -> None:
    cache = PrefixCache(40, CacheConfig(page_size=page_size))
    store(cache, span(0, length))
    whole = length // page_size * page_size
    assert matched(cache, span(0, length)) == matched(cache, span(0, 100)) == whole


def test_a_difference_inside_a_page_loses_that_page_only() -> None:
    cache = PrefixCache(20, CacheConfig(page_size=4))
    store(cache, span(0, 12))
    assert matched(cache, joined(span(0, 7), toks(99), span(8, 12))) == 4
    store(cache, joined(span(0, 7), toks(99), span(8, 12)))
    assert cache.books().tree == 5
    assert matched(cache, span(0, 12)) == matched(cache, joined(span(0, 7), toks(99), span(8, 12))) == 12


def test_pages_that_differ_in_their_last_token_are_siblings() -> None:
    cache = PrefixCache(20, CacheConfig(page_size=4))
    store(cache, toks(7, 7, 7, 1))
    store(cache, toks(7, 7, 7, 2))
    assert matched(cache, toks(7, 7, 7, 1)) == matched(cache, toks(7, 7, 7, 2)) == 4
    assert matched(cache, toks(7, 7, 7, 3)) == 0


def test_namespaces_never_meet() -> None:
    cache = PrefixCache(40)
    spaces = [Namespace("m", tenant=tenant) for tenant in ("key1", "key2", "", None)]
    for namespace in spaces:
        store(cache, toks(1, 2, 3), namespace)
    pages = [page for namespace in spaces for page in pages_of(cache, toks(1, 2, 3), namespace)]
    assert len(set(pages)) == 12
    assert matched(cache, toks(1, 2, 3), Namespace("m", tenant="unknown")) == 0
    assert matched(cache, toks(1, 2, 3), Namespace("other weights", tenant="key1")) == 0


def test_looking_changes_nothing_at_all() -> None:
    cache = PrefixCache(40, CacheConfig(page_size=2))
    store(cache, span(0, 12))
    store(cache, joined(span(0, 4), span(50, 58)))
    store(cache, span(90, 95))
    index = radix_of(cache)
    cache._pool.free(index.evict(5))

    def snapshot() -> list[object]:
        nodes = [
            (id(n), repr(n), n.key, n.used, n.hits, n.rank, n.pages.view.tolist()) for n in nodes_of(cache)
        ]
        ghosts = [
            (id(n), n.used, n.hits) for root in index.roots.values() for n in root.subtree() if n.is_ghost
        ]
        return [
            *nodes,
            *ghosts,
            list(index.roots),
            index._count,
            index.touched,
            cache.books(),
            len(index.order),
        ]

    before = snapshot()
    for tokens in (span(0, 12), span(0, 7), joined(span(0, 6), toks(9, 9)), span(90, 99), toks()):
        cache.match(NS, tokens)
        cache.match(OTHER, tokens)
        cache.history(NS, tokens)
        cache.history(OTHER, tokens)
        cache.room_beside(NS, tokens)
    assert snapshot() == before


def test_looking_does_not_save_from_eviction() -> None:
    cache = PrefixCache(4)
    store(cache, toks(1, 1))
    store(cache, toks(2, 2))
    for _ in range(5):
        matched(cache, toks(1, 1))
    cache.grow(cache.lease(OTHER, toks()), 2)
    assert (matched(cache, toks(1, 1)), matched(cache, toks(2, 2))) == (0, 2)


def test_a_lease_that_ends_inside_an_edge_splits_it_and_its_release_joins_it_again() -> None:
    cache = PrefixCache(20, LRU)
    store(cache, span(0, 10))
    lease = cache.lease(NS, span(0, 10), limit=4)
    assert sorted(node.pages.size for node in nodes_of(cache)) == [4, 6]
    cache.check()
    cache.release(lease)
    again = cache.lease(NS, span(0, 10))
    cache.release(again)
    assert [node.pages.size for node in nodes_of(cache)] == [10]
    cache.check()


def test_splits_are_not_joined_while_a_lease_ends_between() -> None:
    cache = PrefixCache(20, LRU)
    store(cache, span(0, 10))
    short = cache.lease(NS, span(0, 4))
    cache.release(cache.lease(NS, span(0, 10)))
    assert len(nodes_of(cache)) == 2
    cache.check()
    cache.release(short)
    cache.release(cache.lease(NS, span(0, 10)))
    assert len(nodes_of(cache)) == 1
    cache.check()


def test_joining_leaves_the_leases_that_go_all_the_way_alone() -> None:
    cache = PrefixCache(20, LRU)
    long = begin(cache, span(0, 10))
    for end in (3, 5, 8):
        short = cache.lease(NS, span(0, end))
        cache.check()
        cache.release(short)
        cache.check()
    other = begin(cache, span(0, 12))
    cache.release(long)
    cache.check()
    pages = other.table.tolist()
    cache.release(other)
    cache.check()
    assert len(nodes_of(cache)) == 1
    assert pages_of(cache, span(0, 12)) == pages


def test_lockstep_commits_leave_one_edge_behind() -> None:
    cache = PrefixCache(100)
    first, second = (cache.lease(NS, span(0, 40)) for _ in range(2))
    for end in range(4, 41, 4):
        for lease in (first, second):
            cache.grow(lease, end)
            cache.commit(lease, span(0, end))
            cache.check()
    assert first.table.tolist() == second.table.tolist()
    assert cache.books().tree == 40
    cache.release(first)
    cache.release(second)
    assert len(nodes_of(cache)) == 1
    cache.check()


def test_a_namespace_without_pages_leases_or_ghosts_is_forgotten() -> None:
    cache = PrefixCache(4)
    for salt in range(50):
        store(cache, toks(1, 2), Namespace("m", salt=str(salt)))
        cache.release(cache.lease(Namespace("never stored", salt=str(salt)), toks(5)))
    roots = radix_of(cache).roots.values()
    assert sum(root.living > 0 for root in roots) == 2
    # Four ghosts at most, one for a page of the pool, keep their namespaces.
    assert len(roots) == 6
    cache.check()


def test_a_tree_deeper_than_any_recursion_works() -> None:
    depth = 1200
    cache = PrefixCache(depth)
    store(cache, span(0, depth))
    shorts = [cache.lease(NS, span(0, end)) for end in range(1, depth)]
    assert len(nodes_of(cache)) == depth
    assert matched(cache, span(0, depth)) == depth
    cache.check()
    for short in shorts:
        cache.release(short)
    cache.grow(cache.lease(OTHER, toks()), depth - 1)
    assert list(prefixes_of(cache)) == [(NS, (0,))]
    cache.check()


def test_one_token_after_the_other_makes_one_edge() -> None:
    cache = PrefixCache(300, CacheConfig(page_size=2))
    lease = begin(cache, span(0, 10))
    for end in range(11, 500):
        cache.grow(lease, end)
        cache.commit(lease, span(0, end))
    assert [node.pages.size for node in nodes_of(cache)] == [249]
    cache.check()


def test_a_leaf_that_others_read_does_not_grow_under_them() -> None:
    cache = PrefixCache(50)
    first = begin(cache, span(0, 10))
    second = cache.lease(NS, span(0, 10))
    cache.grow(first, 12)
    cache.commit(first, span(0, 12))
    assert second.committed == 10
    cache.check()
    cache.grow(second, 12)
    cache.commit(second, joined(span(0, 10), toks(77, 78)))
    assert cache.books().tree == 14
    cache.check()


@pytest.mark.parametrize(
    ("policy", "edges"),
    [
        ("lru", 1),
        ("mru", 1),
        ("priority", 1),
        ("slru", 2),
        ("lfu", 2),
        ("fifo", 2),
        ("filo", 2),
        ("default", 2),
    ],
)
def test_what_a_policy_tells_apart_is_not_joined(policy: EvictionName, edges: int) -> None:
    """The first half was created by one lease and used by both, the second half by the second alone."""
    cache = PrefixCache(20, CacheConfig(eviction_policy=policy))
    store(cache, span(0, 5))
    store(cache, span(0, 10))
    assert len(nodes_of(cache)) == edges
    cache.check()


def test_a_chain_of_hits_beyond_the_last_class_joins_under_the_default_policy() -> None:
    cache = PrefixCache(40)
    for end in range(2, 33, 2):
        store(cache, span(0, end))
    assert [node.hits for node in nodes_of(cache)][1:] == [7, 6, 5, 4, 3, 2, 1]
    assert nodes_of(cache)[0].pages.size == 18
    cache.check()


def test_a_retained_edge_does_not_lend_its_retention_to_what_grows_behind_it() -> None:
    cache = PrefixCache(20, LRU)
    lease = begin(cache, span(0, 6))
    cache.retain(lease, 50)
    cache.grow(lease, 10)
    cache.commit(lease, span(0, 10))
    cache.release(lease)
    cache.check()
    assert [(node.pages.size, node.retention is not None) for node in nodes_of(cache)] == [
        (6, True),
        (4, False),
    ]
    store(cache, span(50, 60))
    begin(cache, span(70, 74))
    assert matched(cache, span(0, 10)) == 6
    assert matched(cache, span(50, 60)) == 10


def test_leases_that_fill_the_same_evicted_stretch_together_share_one_copy() -> None:
    cache = PrefixCache(40)
    store(cache, span(0, 12))
    cache._pool.free(radix_of(cache).evict(8))
    cache.check()
    first, second = (cache.lease(NS, span(0, 12)) for _ in range(2))
    for end in (6, 9, 12):
        for lease in (second, first):
            cache.grow(lease, end)
            cache.commit(lease, span(0, end))
            cache.check()
    assert first.table.tolist() == second.table.tolist()
    assert cache.books().tree == 12
    for lease in (first, second):
        cache.release(lease)
        cache.check()
    assert all(node.hits == 3 for node in nodes_of(cache)), "the one that stored it and the two that used it"


def test_a_ghost_is_split_where_a_lease_leaves_it_and_filled_as_far_as_asked() -> None:
    cache = PrefixCache(60, CacheConfig(page_size=2))
    store(cache, span(0, 20))
    cache._pool.free(radix_of(cache).evict(10))
    lease = cache.lease(NS, joined(span(0, 8), span(90, 96)))
    cache.check()
    cache.grow(lease, 14)
    cache.commit(lease, joined(span(0, 8), span(90, 96)))
    cache.check()
    assert matched(cache, span(0, 20)) == 8
    assert cache.history(NS, span(0, 20)).known == 20
    cache.release(lease)
    cache.check()


def test_a_flush_under_a_lease_forgets_the_ghosts_below_it() -> None:
    cache = PrefixCache(30)
    store(cache, span(0, 10))
    store(cache, span(50, 55))
    cache._pool.free(radix_of(cache).evict(12))
    lease = cache.lease(NS, span(0, 3))
    cache.flush()
    cache.check()
    assert cache.history(NS, span(0, 10)).known == 0
    cache.release(lease)
    cache.check()
    assert cache.books().free == 30


def test_retention_ends_inside_edges_and_splits_the_pages_it_names_off() -> None:
    cache = PrefixCache(40, CacheConfig(page_size=2, eviction_policy="lru"))
    lease = begin(cache, span(0, 20))
    cache.retain(lease, 7, start=3, end=13)
    cache.check()
    assert [(node.start, node.pages.size) for node in nodes_of(cache)] == [(0, 2), (2, 4), (6, 4)]
    assert [node.retention is not None for node in nodes_of(cache)] == [False, True, False]
    cache.release(lease)
    cache.check()
    assert len(nodes_of(cache)) == 3


def test_a_wish_for_nothing_leaves_the_tree_as_it_is() -> None:
    cache = PrefixCache(40, LRU)
    lease = begin(cache, span(0, 20))
    cache.retain(lease, 0, start=3, end=13)
    cache.retain(lease, 50, seconds=0.0, start=3, end=13)
    cache.retain(lease, 50, start=13, end=3)
    assert [node.retention for node in nodes_of(cache)] == [None]
    cache.check()
