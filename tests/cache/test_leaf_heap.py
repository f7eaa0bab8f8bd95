from __future__ import annotations

import random

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


def test_check_finds_a_leaf_that_says_it_is_elsewhere() -> None:
    heap, leaves = filled(1, 2)
    leaves[0].heap = None
    with pytest.raises(BooksError, match="says otherwise"):
        heap.check()


def test_check_finds_a_leaf_that_goes_before_one_in_front_of_it() -> None:
    heap, leaves = filled(1, 2)
    leaves[1].used, leaves[1].rank, heap._ranks[0][1], heap._ends[0] = 0, (0,), (0,), (0,)
    with pytest.raises(BooksError, match="stands after"):
        heap.check()


def test_check_finds_a_block_under_a_wrong_end() -> None:
    heap, _ = filled(1, 2)
    heap._ends[0] = (3,)
    with pytest.raises(BooksError, match="is kept under"):
        heap.check()


@pytest.mark.parametrize("distinct", [10_000, 3])
def test_thousands_in_any_order_come_out_sorted_and_equals_as_they_came(distinct: int) -> None:
    rng = random.Random(1)
    heap, leaves = filled(*(rng.randrange(distinct) for _ in range(4_000)))
    heap.check()
    gone = set(rng.sample(range(4_000), 2_000))
    for number in gone:
        heap.remove(leaves[number])
    heap.check()
    left = [leaf for number, leaf in enumerate(leaves) if number not in gone]
    assert list(heap) == sorted(left, key=lambda leaf: leaf.used)
    assert len(heap) == 2_000
