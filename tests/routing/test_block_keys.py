from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.helpers import NS, OTHER, blocks
from sapwood.cache import Namespace
from sapwood.errors import BooksError
from sapwood.routing import block_keys

tokens = st.lists(st.integers(0, 2), max_size=40).map(lambda ids: np.array(ids, np.int32))


@given(one=tokens, other=tokens, size=st.integers(1, 5))
def test_keys_are_equal_as_far_as_the_whole_blocks_are(one: np.ndarray, other: np.ndarray, size: int) -> None:
    ours, theirs = block_keys(NS, one, size), block_keys(NS, other, size)
    assert len(ours) == len(one) // size
    for n, (left, right) in enumerate(zip(ours, theirs, strict=False), start=1):
        assert (left == right) == np.array_equal(one[: n * size], other[: n * size])


@given(whole=tokens, cut=st.integers(0, 40), size=st.integers(1, 5))
def test_what_is_known_of_a_beginning_is_taken_over(whole: np.ndarray, cut: int, size: int) -> None:
    known = block_keys(NS, whole[:cut], size)
    assert block_keys(NS, whole, size, known) == block_keys(NS, whole, size)


def test_namespaces_share_no_key() -> None:
    """RO-12, and the tenants' isolation: the same tokens, another adapter, tenant or salt."""
    spaces = [NS, OTHER, Namespace("model", adapter="a"), Namespace("model", salt="s"), Namespace("other")]
    keys = [key for space in spaces for key in block_keys(space, blocks(1, 2, 3))]
    assert len(set(keys)) == len(keys) == 15


def test_other_integers_are_refused() -> None:
    with pytest.raises(BooksError, match="int64"):
        block_keys(NS, np.arange(64))  # type: ignore[arg-type]
