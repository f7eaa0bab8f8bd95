"""Costs counted in nodes, comparisons and walks; never in seconds."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from cache.helpers import NS, begin, matched, nodes_of, radix_of, span, store, toks
from sapwood.cache import PrefixCache, radix
from sapwood.cache.check import Claims
from sapwood.cache.density_order import _MOST_MOVES, DensityOrder
from sapwood.cache.evict import Evictable
from sapwood.cache.eviction_order import KeyOrder
from sapwood.cache.ghosts import Ghosts
from sapwood.cache.radix import RadixIndex
from sapwood.cache.sorted_leaves import SortKey
from sapwood.cache.tenant_order import TenantOrder
from sapwood.config import CacheConfig


class CountingPolicy:
    """LRU whose keys count how often they are made and compared."""

    def __init__(self) -> None:
        self.made = 0
        self.compared = 0

    def key(self, leaf: Evictable) -> SortKey:
        self.made += 1
        policy = self

        class CountedKey(tuple[float, ...]):
            __slots__ = ()

            def __lt__(self, other: tuple[float, ...]) -> bool:
                policy.compared += 1
                return super().__lt__(other)

            def __le__(self, other: tuple[float, ...]) -> bool:
                policy.compared += 1
                return super().__le__(other)

        return CountedKey((leaf.used,))


def index_with_leaves(leaves: int, order: TenantOrder | None = None) -> RadixIndex:
    index = RadixIndex(100, CacheConfig())
    index.order = order or index.order
    for leaf in range(leaves):
        index.advance(leaf / 100)
        cursor = index.pin(NS, toks())
        cursor.extend(toks(leaf, leaf), toks(2 * leaf, 2 * leaf + 1))
        cursor.unpin()
    return index


def test_evicting_touches_as_many_nodes_in_a_large_tree_as_in_a_small_one() -> None:
    touched, keys = [], []
    for leaves in (1_000, 30_000):
        policy = CountingPolicy()
        index = index_with_leaves(leaves, TenantOrder(KeyOrder(policy)))
        nodes, made, compared = index.touched, policy.made, policy.compared
        for _ in range(10):
            assert len(index.evict(9)) == 9
        touched.append(index.touched - nodes)
        keys.append(policy.made - made)
        assert policy.compared - compared <= touched[-1] * 4 * math.log2(leaves)
        assert index.pages == 2 * leaves - 90
    # 90 pages are 45 leaves of 2; five of them are taken in two bites because 9 is odd.
    assert touched == [50, 50]
    assert len(set(keys)) == 1


def test_the_default_policy_touches_as_many_nodes_in_a_large_tree_as_in_a_small_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    touched, labels = [], []
    for leaves in (1_000, 10_000):
        index = index_with_leaves(leaves)
        index.evict(3)
        counted, before = count_calls(monkeypatch, DensityOrder, "_label"), index.touched
        for _ in range(10):
            assert len(index.evict(9)) == 9
        touched.append(index.touched - before)
        labels.append(counted())
        monkeypatch.undo()
    assert touched == [50, 50]
    # Labels are made for leaves that have grown older: so many at most for each leaf that is evicted.
    assert max(labels) <= 50 * _MOST_MOVES


def test_ghosts_cost_an_eviction_no_more_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_with_leaves(2_000)
    index.evict(2_000)
    index.check([], Claims(4_000))
    forgotten, before = count_calls(monkeypatch, Ghosts, "remove"), index.touched
    for _ in range(10):
        assert len(index.evict(10)) == 10
    assert index.touched - before == 50
    assert forgotten() == 50, "one is forgotten for each that comes, and none is looked at besides"


def test_trimming_a_long_leaf_touches_that_leaf_alone() -> None:
    cache = PrefixCache(5_000)
    store(cache, span(0, 4_000))
    store(cache, span(9_000, 10_000))
    greedy = cache.lease(NS, toks(-1))
    before = radix_of(cache).touched
    for pages in range(1, 101):
        cache.grow(greedy, pages)
        assert matched(cache, span(0, 4_000)) == 4_000 - pages
    assert radix_of(cache).touched - before == 100


def test_evicting_never_walks_a_deep_and_wide_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = PrefixCache(40 * 50)
    for branch in range(40):
        leases = [begin(cache, toks(*([branch] * depth))) for depth in range(1, 51)]
        for lease in leases:
            cache.release(lease)
    index = radix_of(cache)
    walks = count_calls(monkeypatch, radix, "walk")
    before = index.touched
    assert len(index.evict(100)) == 100
    assert walks() == 0
    assert index.touched - before <= 100


def test_committing_one_token_more_walks_nothing_and_makes_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = PrefixCache(3_000)
    for branch in range(200):
        store(cache, toks(1, 2, 3, 1000 + branch))
    lease = begin(cache, span(1, 20))
    nodes, walks = len(nodes_of(cache)), count_calls(monkeypatch, radix, "walk")
    for end in range(21, 1_000):
        cache.grow(lease, end)
        cache.commit(lease, span(1, end))
    assert walks() == 0
    assert len(nodes_of(cache)) == nodes
    assert matched(cache, span(1, 999)) == 998


def test_evicting_gives_exactly_what_is_missing() -> None:
    cache = PrefixCache(100)
    for start in range(0, 100, 10):
        store(cache, span(start, start + 10))
    lease = cache.lease(NS, toks(-1))
    for length in (1, 4, 17, 18, 60):
        cache.grow(lease, length)
        assert cache.books().evicted_tokens == length
        assert cache.books().free == 0
    cache.check()


def count_calls(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> Callable[[], int]:
    calls, original = [0], getattr(owner, name)

    def counted(*args: object) -> object:
        calls[0] += 1
        return original(*args)

    monkeypatch.setattr(owner, name, counted)
    return lambda: calls[0]
