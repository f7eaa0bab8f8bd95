from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from cache.helpers import toks
from sapwood.cache.pool import PagePool
from sapwood.errors import BooksError, OutOfPagesError, UsageError


def test_pages_come_in_order_and_the_last_freed_goes_first() -> None:
    pool = PagePool(5)
    assert pool.alloc(3).tolist() == [0, 1, 2]
    pool.free(toks(1))
    assert pool.alloc(2).tolist() == [1, 3]
    assert pool.free_count == 1


def test_exactly_what_is_left_can_be_had_and_not_one_more() -> None:
    pool = PagePool(4)
    with pytest.raises(OutOfPagesError, match="5 pages are asked for; 4 are free"):
        pool.alloc(5)
    assert pool.free_count == 4
    assert sorted(pool.alloc(4).tolist()) == [0, 1, 2, 3]
    assert pool.alloc(0).tolist() == []


@pytest.mark.parametrize(
    ("pages", "reason"),
    [
        (toks(0, 3), "page 3 cannot be freed: it is free already"),
        (toks(1, 0, 1), "page 1 cannot be freed: it is named twice"),
        (toks(2, -1), "page -1 cannot be freed: it is not one of 4"),
        (toks(0, 1, 0, 1), "4 pages are freed; 3 are handed out"),
        (toks(4), "page 4 cannot be freed: it is not one of 4"),
        (np.array([0, 2**32 + 1]), "page ids are int64; they must be int32"),
    ],
)
def test_a_wrong_free_names_the_page_and_takes_none(pages: NDArray[np.int32], reason: str) -> None:
    pool = PagePool(4)
    pool.alloc(3)
    with pytest.raises(BooksError, match=reason):
        pool.free(pages)
    assert pool.free_count == 1
    pool.free(toks(0, 1, 2))
    assert pool.free_count == 4


def test_a_pool_without_pages_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        PagePool(0)


@given(st.lists(st.integers(-6, 6), max_size=40))
def test_no_page_is_handed_out_twice(steps: list[int]) -> None:
    pool, held = PagePool(12), []
    for step in steps:
        if 0 <= step <= pool.free_count:
            held += pool.alloc(step).tolist()
        elif step < 0:
            pool.free(toks(*held[:-step]))
            held = held[-step:]
        assert sorted(held + pool.free_pages.tolist()) == list(range(12))
