from __future__ import annotations

import gc
import math
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache.helpers import NS, begin, radix_of, span, store, toks
from cache.test_evict import Leaf
from sapwood.cache import PrefixCache
from sapwood.cache.evict import Lru
from sapwood.cache.eviction_order import _MOST_ENDINGS, EvictionOrder, KeyOrder
from sapwood.cache.retention import Retention
from sapwood.config import CacheConfig, EvictionName
from sapwood.errors import BooksError


def lru_order() -> EvictionOrder[Leaf]:
    return EvictionOrder(KeyOrder(Lru()))


def emptied(order: EvictionOrder[Leaf]) -> list[int]:
    """When the leaves were used, in the order in which they go."""
    gone = []
    while len(order):
        gone.append(order.first().used)
        order.remove(order.first())
    return gone


def test_retained_leaves_go_last_and_the_lowest_priority_first() -> None:
    order = lru_order()
    for leaf in (
        Leaf(1, retention=Retention(50)),
        Leaf(2, retention=Retention(10)),
        Leaf(3),
        Leaf(4, retention=Retention(10)),
        Leaf(5, retention=Retention(0)),
    ):
        order.add(leaf)
    assert emptied(order) == [3, 5, 2, 4, 1]


def test_when_a_retention_ends_its_leaf_is_like_all_others() -> None:
    order = lru_order()
    leaves = [Leaf(1, retention=Retention(50, until=10)), Leaf(2), Leaf(3, retention=Retention(1, until=20))]
    for leaf in leaves:
        order.add(leaf)
    order.advance(9.9)
    order.check(leaves)
    assert order.first() is leaves[1]
    order.advance(10)
    order.check(leaves)
    assert order.first() is leaves[0]
    assert leaves[0].retention is None
    order.advance(1e9)
    order.check(leaves)
    assert emptied(order) == [1, 2, 3]


def test_a_leaf_whose_retention_ended_while_it_was_away_comes_back_without() -> None:
    order = lru_order()
    leaf = Leaf(1, retention=Retention(50, until=10))
    order.add(leaf)
    order.remove(leaf)
    order.advance(10)
    order.add(leaf)
    assert leaf.retention is None
    order.check([leaf])


def test_a_leaf_may_get_the_very_retention_again_that_it_had_before() -> None:
    order = lru_order()
    leaf, long, short = Leaf(1), Retention(10, until=100), Retention(20, until=50)
    for retention in (long, short, long, short):
        leaf.retention = retention
        order.add(leaf)
        order.check([leaf])
        order.remove(leaf)
    leaf.retention = long
    order.add(leaf)
    order.advance(60)
    assert len(order._retained) == 1
    order.advance(100)
    assert len(order._retained) == 0
    order.check([leaf])


@given(
    st.lists(
        st.tuples(
            st.integers(0, 9), st.integers(0, 3), st.sampled_from([math.inf, 1.0, 2.0, 5.0]), st.booleans()
        ),
        max_size=40,
    )
)
def test_any_coming_and_going_leaves_the_order_of_a_plain_sort(
    steps: list[tuple[int, int, float, bool]],
) -> None:
    order, leaves, now = lru_order(), list[Leaf](), 0.0
    for pick, priority, seconds, leaves_again in steps:
        if leaves_again and leaves:
            order.remove(leaves.pop(pick % len(leaves)))
        else:
            leaves.append(Leaf(pick, retention=Retention(priority, now + seconds)))
            order.add(leaves[-1])
        now += 0.5
        order.advance(now)
        order.check(leaves)

    def key(leaf: Leaf) -> tuple[float, ...]:
        retained = leaf.retention is not None and leaf.retention.holds(now)
        return (retained, leaf.retention.priority if leaf.retention and retained else 0, leaf.used)

    assert [key(leaf)[2] for leaf in sorted(leaves, key=key)] == emptied(order)


def test_nothing_is_kept_of_leaves_that_come_and_go() -> None:
    order = lru_order()
    leaf = Leaf(1)
    for turn in range(1000):
        leaf.retention = Retention(turn % 99 + 1, until=1e6 + turn)
        order.add(leaf)
        assert len(order._expiries) == len(order._expiry_of) == 1
        order.remove(leaf)
        assert len(order._expiries) == len(order._expiry_of) == 0
    order.advance(1e9)
    order.check([])


def test_a_forgotten_leaf_is_not_kept_alive_by_its_retention_nor_comes_back_at_its_end() -> None:
    order = lru_order()
    leaf = Leaf(1, retention=Retention(50, until=10))
    order.add(leaf)
    order.remove(leaf)
    dead = weakref.ref(leaf)
    del leaf
    gc.collect()
    assert dead() is None
    order.advance(11)
    assert len(order) == 0


def test_removing_a_leaf_that_is_not_there_changes_nothing() -> None:
    order, leaf = lru_order(), Leaf(1)
    order.add(leaf)
    order.remove(leaf)
    order.remove(leaf)
    order.check([])


def test_check_finds_missing_and_extra_leaves() -> None:
    order, leaves = lru_order(), [Leaf(1), Leaf(2)]
    for leaf in leaves:
        order.add(leaf)
    with pytest.raises(BooksError, match="missing"):
        order.check([*leaves, Leaf(3)])
    with pytest.raises(BooksError, match="2 leaves are in the eviction order, 1 are evictable"):
        order.check(leaves[:1])


@pytest.mark.parametrize("policy", ["lru", "default"])
def test_retained_prefixes_that_are_evicted_and_flushed_leave_nothing_behind(policy: EvictionName) -> None:
    cache = PrefixCache(20, CacheConfig(eviction_policy=policy))
    for turn in range(300):
        lease = begin(cache, span(10 * turn, 10 * turn + 10))
        cache.retain(lease, 50, seconds=3600.0 + turn, start=turn % 3, end=8)
        cache.release(lease)
        cache.advance(float(turn))
        cache.check()
        if turn % 100 == 99:
            cache.flush()
            cache.check()
    order = radix_of(cache).order
    assert len(order) == len(order._expiries) == len(order._expiry_of) == 0


def test_a_retained_prompt_outlives_newer_ones_until_its_time_is_over() -> None:
    cache = PrefixCache(20, CacheConfig(eviction_policy="lru"))
    lease = begin(cache, span(0, 5))
    cache.retain(lease, 50, seconds=60)
    cache.release(lease)
    for turn in range(1, 30):
        cache.advance(2.0 * turn)
        store(cache, span(100 * turn, 100 * turn + 5))
        cache.check()
        assert cache.match(NS, span(0, 5)).tokens == 5
    cache.advance(60.0)
    cache.grow(cache.lease(NS, toks(-1)), 5)
    cache.check()
    assert cache.match(NS, span(0, 5)).tokens == 0


def test_retentions_that_end_together_are_ended_some_at_a_time() -> None:
    order = lru_order()
    leaves = [Leaf(number, retention=Retention(50, until=10)) for number in range(5 * _MOST_ENDINGS)]
    for leaf in leaves:
        order.add(leaf)
    for step in range(1, 6):
        order.advance(10.0 + step)
        order.check(leaves)
        assert len(order._plain) == step * _MOST_ENDINGS
    assert emptied(order) == list(range(len(leaves)))


def test_a_retention_that_has_ended_does_not_outlast_one_that_holds_for_want_of_a_step() -> None:
    order = lru_order()
    holds = Leaf(0, retention=Retention(1))
    order.add(holds)
    for number in range(1, 3 * _MOST_ENDINGS):
        order.add(Leaf(number, retention=Retention(50, until=10)))
    order.advance(11)
    assert emptied(order)[-1] == 0
