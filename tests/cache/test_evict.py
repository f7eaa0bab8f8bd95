"""The sort keys: who goes before whom."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest

from cache.helpers import NS, begin, matched, span, store, toks
from sapwood.cache import PrefixCache
from sapwood.cache.evict import EvictionPolicy, Fifo, Filo, Lfu, Lru, Mru, Priority, Slru
from sapwood.cache.retention import Retention
from sapwood.cache.sorted_leaves import SortedLeaves, SortKey
from sapwood.config import CacheConfig, EvictionName


@dataclass(eq=False)
class Leaf:
    used: int = 0
    hits: int = 1
    created: int = 0
    idle_since: float = 0.0
    depth: int = 1
    retention: Retention | None = None
    rank: SortKey = ()
    filed_in: SortedLeaves[Any] | None = None


def order(policy: EvictionPolicy, *leaves: Leaf) -> list[int]:
    """Which of the leaves goes first, second, …, by their number."""
    return sorted(range(len(leaves)), key=lambda number: policy.key(leaves[number]))


def test_lru_older_use_goes_first() -> None:
    assert order(Lru(), Leaf(used=5), Leaf(used=1), Leaf(used=3)) == [1, 2, 0]


def test_mru_latest_use_goes_first() -> None:
    assert order(Mru(), Leaf(used=5), Leaf(used=1), Leaf(used=3)) == [0, 2, 1]


def test_lfu_fewer_hits_go_first_however_recent() -> None:
    assert order(Lfu(), Leaf(hits=100, used=1), Leaf(hits=1, used=10)) == [1, 0]


def test_lfu_equal_hits_older_use_goes_first() -> None:
    assert order(Lfu(), Leaf(hits=4, used=9), Leaf(hits=4, used=2)) == [1, 0]


def test_fifo_earliest_created_goes_first_however_recently_used() -> None:
    assert order(Fifo(), Leaf(created=7, used=1), Leaf(created=2, used=9)) == [1, 0]


def test_filo_newest_created_goes_first_however_recently_used() -> None:
    assert order(Filo(), Leaf(created=7, used=9), Leaf(created=2, used=1)) == [0, 1]


def test_priority_lower_goes_first_however_recent() -> None:
    low, high = Leaf(used=10, retention=Retention(1)), Leaf(used=1, retention=Retention(5))
    assert order(Priority(), high, low) == [1, 0]


def test_priority_ties_older_use_goes_first_and_none_is_the_lowest() -> None:
    leaves = [Leaf(used=9, retention=Retention(3)), Leaf(used=2, retention=Retention(3)), Leaf(used=99)]
    assert order(Priority(), *leaves) == [2, 1, 0]


def test_slru_has_a_probationary_and_a_protected_segment() -> None:
    leaves = [Leaf(hits=5, used=1), Leaf(hits=0, used=10), Leaf(hits=0, used=2), Leaf(hits=3, used=8)]
    assert order(Slru(), *leaves) == [2, 1, 0, 3]


@pytest.mark.parametrize(
    ("threshold", "hits", "protected"), [(2, 1, False), (2, 2, True), (5, 4, False), (5, 5, True)]
)
def test_slru_protects_from_its_threshold_on(threshold: int, hits: int, protected: bool) -> None:
    assert Slru(threshold).key(Leaf(hits=hits)) == (protected, 0)


@pytest.mark.parametrize(
    ("policy", "survivor"),
    [("lru", 20), ("mru", 10), ("fifo", 20), ("filo", 30), ("lfu", 30), ("slru", 20), ("priority", 20)],
)
def test_each_policy_by_its_name_in_a_real_cache(policy: EvictionName, survivor: int) -> None:
    """Stored in the order 30, 10, 20; then 30 is used twice more, and 20 once."""
    cache = PrefixCache(9, CacheConfig(eviction_policy=policy))
    for start in (30, 10, 20):
        store(cache, span(start, start + 3))
    for start in (30, 30, 20):
        cache.release(cache.lease(NS, span(start, start + 3)))
    lease = cache.lease(NS, toks(-1))
    cache.grow(lease, 6)
    cache.check()
    assert [start for start in (10, 20, 30) if matched(cache, span(start, start + 3))] == [survivor]


@pytest.mark.parametrize("policy", ["lru", "mru", "lfu", "fifo", "filo", "slru", "priority", "default"])
def test_lookups_disturb_no_order(policy: EvictionName) -> None:
    left = []
    for looks in (0, 5):
        cache = PrefixCache(12, CacheConfig(eviction_policy=policy))
        for start in (0, 10, 20, 30):
            store(cache, span(start, start + 3))
        for _ in range(looks):
            assert matched(cache, span(20, 23)) == 3
            cache.history(NS, span(20, 24))
        begin(cache, span(90, 97))
        cache.check()
        left.append([matched(cache, span(start, start + 3)) for start in (0, 10, 20, 30)])
    assert left[0] == left[1]
    assert sum(left[0]) == 5


@pytest.mark.parametrize("policy", ["lru", "mru", "lfu", "fifo", "filo", "slru", "priority", "default"])
def test_under_every_policy_what_is_retained_goes_last_and_does_go(policy: EvictionName) -> None:
    cache = PrefixCache(12, CacheConfig(eviction_policy=policy))
    for start, priority in ((0, 0), (10, 20), (20, 10), (30, 0)):
        lease = begin(cache, span(start, start + 3))
        cache.retain(lease, priority, math.inf)
        cache.release(lease)
    greedy = cache.lease(NS, toks(-1))
    gone = []
    for pages in range(3, 13, 3):
        cache.grow(greedy, pages)
        cache.check()
        gone.append({start for start in (0, 10, 20, 30) if not matched(cache, span(start, start + 3))})
    assert gone[1:] == [{0, 30}, {0, 20, 30}, {0, 10, 20, 30}]
