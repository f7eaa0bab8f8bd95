from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache.helpers import span, toks
from sapwood.cache.keys import Namespace, common_prefix, page_key

small = st.lists(st.integers(0, 2), max_size=12)


def test_no_namespace_field_collides_with_another() -> None:
    spaces = [
        Namespace("m"),
        Namespace(""),
        Namespace("m", adapter=""),
        Namespace("m", tenant=""),
        Namespace("m", salt=""),
        Namespace("m", adapter="a"),
        Namespace("m", tenant="a"),
        Namespace("m", salt="a"),
        Namespace("m", adapter="a", tenant="b"),
        Namespace("m", adapter="ab"),
        Namespace("ma"),
    ]
    assert len(set(spaces)) == len(spaces)
    assert Namespace("m", tenant="a") == Namespace("m", tenant="a")


@given(small, small)
def test_common_prefix_equals_a_plain_loop(a: list[int], b: list[int]) -> None:
    plain = 0
    while plain < min(len(a), len(b)) and a[plain] == b[plain]:
        plain += 1
    assert common_prefix(toks(*a), toks(*b)) == plain


@pytest.mark.parametrize("differs_at", [0, 1, 63, 64, 65, 575, 576, 577, 4671, 4672, 9999])
def test_common_prefix_gallops_over_every_edge_of_its_strides(differs_at: int) -> None:
    a, b = span(0, 10_000), span(0, 10_000)
    b[differs_at] = -7
    assert common_prefix(a, b) == differs_at
    assert common_prefix(a[:differs_at], b) == differs_at


def test_common_prefix_of_equal_arrays_is_their_length() -> None:
    assert common_prefix(span(0, 10_000), span(0, 10_000)) == 10_000
    assert common_prefix(span(0, 10_000), span(0, 100)) == 100
    assert common_prefix(toks(), span(0, 3)) == 0


def test_a_page_key_holds_all_tokens_of_its_page_and_no_other() -> None:
    tokens = toks(1, 2, 3, 4, 1, 2, 3, 5)
    assert page_key(tokens, 2, 1) == 3
    assert page_key(tokens, 0, 3) == page_key(tokens, 4, 3)
    assert page_key(tokens, 0, 4) != page_key(tokens, 4, 4)
    assert page_key(tokens[::2], 0, 2) == page_key(np.array([1, 3], dtype=np.int32), 0, 2)
