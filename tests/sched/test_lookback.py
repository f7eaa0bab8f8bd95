from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.sched.lookback import LEAST, LONGEST, PLACES, WINDOW, Occurrence, Pairs, last_occurrence

texts = st.lists(st.integers(0, 2), max_size=40)


def by_definition(text: list[int], tokens: list[int]) -> Occurrence | None:
    for length in range(min(LONGEST, len(tokens)), LEAST - 1, -1):
        for end in range(len(text) - 1, length - 1, -1):
            if text[end - length : end] == tokens[len(tokens) - length :]:
                return Occurrence(end, length)
    return None


@given(text=texts, tokens=texts)
def test_it_is_the_last_of_the_longest_with_something_behind_it(text: list[int], tokens: list[int]) -> None:
    found = last_occurrence(np.array(text, np.int32), np.array(tokens, np.int32))
    assert found == by_definition(text, tokens)


@given(tokens=texts)
def test_in_itself_the_end_does_not_count(tokens: list[int]) -> None:
    array = np.array(tokens, np.int32)
    found = last_occurrence(array, array)
    assert found == by_definition(tokens, tokens)
    assert found is None or found.end < len(tokens)


def test_only_the_window_is_looked_at() -> None:
    text = np.arange(3 * WINDOW, dtype=np.int32)
    for start in (0, 2 * WINDOW - LEAST, 2 * WINDOW - 1):
        assert last_occurrence(text, text[start : start + 2]) is None
    last = text[2 * WINDOW : 2 * WINDOW + 2]
    assert last_occurrence(text, last) == Occurrence(2 * WINDOW + 2, 2)


def test_of_many_places_the_last_are_looked_at() -> None:
    """A longer agreement before them is not found."""
    text = np.array([7, 8, 9, *[1, 8, 9] * PLACES, 5], np.int32)
    assert last_occurrence(text, np.array([7, 8, 9], np.int32)) == Occurrence(len(text) - 1, 2)
    assert last_occurrence(text[:-3], np.array([7, 8, 9], np.int32)) == Occurrence(3, 3)


@given(text=texts, cuts=st.lists(st.integers(0, 40), max_size=5), tokens=texts)
def test_no_pair_is_missed_however_the_text_grew(text: list[int], cuts: list[int], tokens: list[int]) -> None:
    pairs, array, end = Pairs(), np.array(text, np.int32), np.array(tokens, np.int32)
    for cut in [*sorted(cuts), len(text)]:
        pairs.learn(array[:cut])
    if last_occurrence(array, end) is not None:
        assert pairs.may_have_last_of(end)
    assert not pairs.may_have_last_of(np.array([70, 71], np.int32))


@pytest.mark.parametrize("stride", [1, 31, 32, 33, 1000, 3 * WINDOW, 10 * WINDOW])
def test_pairs_of_a_long_text_take_no_more_room(stride: int) -> None:
    """One by one or all at once they are the same, and few are found that are not there."""
    length = 10 * WINDOW
    text = np.random.default_rng(0).integers(0, 150_000, length, dtype=np.int32)
    pairs = Pairs()
    for end in range(stride, length + stride, stride):
        pairs.learn(text[:end])
    assert len(pairs._seen) == Pairs.BYTES
    assert all(pairs.may_have_last_of(text[:end]) for end in range(length - WINDOW + 2, length + 1))
    wrong = sum(pairs.may_have_last_of(text[[at, at - 7]]) for at in range(1000, 3000))
    assert wrong < 0.3 * 2000
