from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache.test_evict import Leaf
from sapwood.cache.evict import Lru
from sapwood.cache.leaf_heap import LeafHeap
from sapwood.errors import BooksError


def filled(*used: int) -> tuple[LeafHeap[Leaf], list[Leaf]]:
    heap: LeafHeap[Leaf] = LeafHeap(Lru().key)
    leaves = [Leaf(when) for when in used]
    for leaf in leaves:
        heap.add(leaf)
    return heap, leaves


def test_an_empty_heap_has_no_first_and_says_so() -> None:
    heap, _ = filled()
    assert not heap
    with pytest.raises(BooksError, match="none is evictable"):
        heap.first()


def test_looking_at_the_first_leaves_it_there() -> None:
    heap, leaves = filled(3, 1, 2)
    assert heap.first() is heap.first() is leaves[1]
    assert len(heap) == 3


def test_a_leaf_knows_whether_and_where_it_is_filed() -> None:
    heap, leaves = filled(3, 1, 2)
    assert all(leaf.heap is heap for leaf in leaves)
    heap.remove(leaves[1])
    assert leaves[1].heap is None
    assert set(heap) == {leaves[0], leaves[2]}


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.integers(0, 99)), max_size=60))
def test_any_adds_and_removes_keep_the_order_of_a_plain_sort(steps: list[tuple[int, bool, int]]) -> None:
    heap, leaves = filled()
    for used, takes_out, pick in steps:
        if takes_out and leaves:
            heap.remove(leaves.pop(pick % len(leaves)))
        else:
            leaves.append(Leaf(used))
            heap.add(leaves[-1])
        heap.check()
        assert len(heap) == len(leaves)
    taken = []
    while heap:
        taken.append(heap.first().used)
        heap.remove(heap.first())
        heap.check()
    assert taken == sorted(leaf.used for leaf in leaves)


def test_check_finds_a_leaf_whose_key_changed_behind_its_back() -> None:
    heap, leaves = filled(1, 2)
    leaves[1].used = 9
    with pytest.raises(BooksError, match="is filed under"):
        heap.check()


def test_check_finds_misplaced_leaves() -> None:
    heap, leaves = filled(1, 2)
    leaves[0].place = 1
    with pytest.raises(BooksError, match="at place 0"):
        heap.check()


def test_check_finds_a_leaf_below_one_that_goes_later() -> None:
    heap, leaves = filled(1, 2)
    leaves[0].used, leaves[0].rank = 3, (3,)
    with pytest.raises(BooksError, match="stands below"):
        heap.check()
