from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache.test_evict import Leaf
from sapwood.cache import sorted_leaves
from sapwood.cache.evict import Lru
from sapwood.cache.sorted_leaves import SortedLeaves
from sapwood.errors import BooksError


def filled(*used: int) -> tuple[SortedLeaves[Leaf], list[Leaf]]:
    order: SortedLeaves[Leaf] = SortedLeaves(Lru().key)
    leaves = [Leaf(when) for when in used]
    for leaf in leaves:
        order.add(leaf)
    return order, leaves


def test_an_empty_order_has_no_first_and_says_so() -> None:
    order, _ = filled()
    assert not order
    with pytest.raises(BooksError, match="none is evictable"):
        order.first()


def test_looking_at_the_first_leaves_it_there() -> None:
    order, leaves = filled(3, 1, 2)
    assert order.first() is order.first() is leaves[1]
    assert len(order) == 3


def test_a_leaf_knows_whether_and_where_it_is_filed() -> None:
    order, leaves = filled(3, 1, 2)
    assert all(leaf.filed_in is order for leaf in leaves)
    order.remove(leaves[1])
    assert leaves[1].filed_in is None
    assert set(order) == {leaves[0], leaves[2]}


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.integers(0, 99)), max_size=60))
def test_any_adds_and_removes_keep_the_order_of_a_plain_sort(steps: list[tuple[int, bool, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_leaves, "_MOST", 3)
        check_steps(steps)


def check_steps(steps: list[tuple[int, bool, int]]) -> None:
    order, leaves = filled()
    for used, takes_out, pick in steps:
        if takes_out and leaves:
            order.remove(leaves.pop(pick % len(leaves)))
        else:
            leaves.append(Leaf(used))
            order.add(leaves[-1])
        order.check()
        assert len(order) == len(leaves)
    taken = []
    while order:
        taken.append(order.first().used)
        order.remove(order.first())
        order.check()
    assert taken == sorted(leaf.used for leaf in leaves)


def test_a_full_block_is_cut_in_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_leaves, "_MOST", 3)
    order, _ = filled(1, 2, 4, 3)
    assert order._ranks == [[Lru().key(Leaf(each)) for each in block] for block in ((1, 2), (3, 4))]


def test_check_finds_a_leaf_whose_key_changed_behind_its_back() -> None:
    order, leaves = filled(1, 2)
    leaves[1].used = 9
    with pytest.raises(BooksError, match="is filed under"):
        order.check()


def test_check_finds_a_leaf_that_says_it_is_elsewhere() -> None:
    order, leaves = filled(1, 2)
    leaves[0].filed_in = None
    with pytest.raises(BooksError, match="says otherwise"):
        order.check()


def test_check_finds_a_leaf_that_goes_before_one_in_front_of_it() -> None:
    order, leaves = filled(1, 2)
    leaves[1].used, leaves[1].rank, order._ranks[0][1], order._ends[0] = 0, (0,), (0,), (0,)
    with pytest.raises(BooksError, match="stands after"):
        order.check()


def test_check_finds_a_block_under_a_wrong_end() -> None:
    order, _ = filled(1, 2)
    order._ends[0] = (3,)
    with pytest.raises(BooksError, match="is kept under"):
        order.check()


@pytest.mark.parametrize("distinct", [10_000, 3])
def test_thousands_in_any_order_come_out_sorted_and_equals_as_they_came(distinct: int) -> None:
    rng = random.Random(1)
    order, leaves = filled(*(rng.randrange(distinct) for _ in range(4_000)))
    order.check()
    gone = set(rng.sample(range(4_000), 2_000))
    for number in gone:
        order.remove(leaves[number])
    order.check()
    left = [leaf for number, leaf in enumerate(leaves) if number not in gone]
    assert list(order) == sorted(left, key=lambda leaf: leaf.used)
    assert len(order) == 2_000
