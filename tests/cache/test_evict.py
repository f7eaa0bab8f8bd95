from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.cache.evict import EvictionOrder, Lru, SortKey, policy_named
from sapwood.errors import BooksError


@dataclass(eq=False)
class Leaf:
    used: int
    rank: SortKey = ()
    place: int | None = None


def filled(*used: int) -> tuple[EvictionOrder[Leaf], list[Leaf]]:
    order: EvictionOrder[Leaf] = EvictionOrder(Lru())
    leaves = [Leaf(when) for when in used]
    for leaf in leaves:
        order.add(leaf)
    return order, leaves


def test_lru_takes_the_least_recently_used_first() -> None:
    order, _ = filled(5, 1, 3)
    assert [order.pop().used for _ in range(3)] == [1, 3, 5]
    assert len(order) == 0


def test_lru_is_found_by_its_name() -> None:
    assert isinstance(policy_named("lru"), Lru)


def test_popping_from_an_empty_order_is_a_bug_and_says_so() -> None:
    with pytest.raises(BooksError, match="none is evictable"):
        EvictionOrder[Leaf](Lru()).pop()


def test_removing_a_leaf_that_is_not_there_changes_nothing() -> None:
    order, leaves = filled(2, 1)
    order.remove(leaves[0])
    order.remove(leaves[0])
    assert len(order) == 1
    order.check(leaves[1:])


@given(st.lists(st.integers(0, 9)), st.data())
def test_adding_and_removing_anywhere_keeps_the_order_of_a_plain_sort(
    used: list[int], data: st.DataObject
) -> None:
    order, leaves = filled(*used)
    for _ in range(len(leaves) // 2):
        leaf = leaves.pop(data.draw(st.integers(0, len(leaves) - 1)))
        order.remove(leaf)
        assert leaf.place is None
        order.check(leaves)
    assert [order.pop().used for _ in range(len(order))] == sorted(leaf.used for leaf in leaves)


def test_check_finds_a_leaf_whose_key_changed_behind_its_back() -> None:
    order, leaves = filled(1, 2)
    leaves[1].used = 9
    with pytest.raises(BooksError, match="is filed under"):
        order.check(leaves)


def test_check_finds_missing_extra_and_misplaced_leaves() -> None:
    order, leaves = filled(1, 2)
    with pytest.raises(BooksError, match="missing"):
        order.check([*leaves, Leaf(3)])
    with pytest.raises(BooksError, match="2 leaves are in the eviction order, 1 are evictable"):
        order.check(leaves[:1])
    leaves[0].place = 1
    with pytest.raises(BooksError, match="at place 0"):
        order.check(leaves)
