from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sapwood.sched.lookback import LONGEST, Occurrence, Pairs, last_occurrence

texts = st.lists(st.integers(0, 2), max_size=40)


def by_definition(text: list[int], tokens: list[int]) -> Occurrence | None:
    for length in range(min(LONGEST, len(tokens)), 0, -1):
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


@given(text=texts, cuts=st.lists(st.integers(0, 40), max_size=5), tokens=texts)
def test_pairs_are_those_of_the_text_however_it_grew(
    text: list[int], cuts: list[int], tokens: list[int]
) -> None:
    pairs, array = Pairs(), np.array(text, np.int32)
    for cut in [*sorted(cuts), len(text)]:
        pairs.learn(array[:cut])
    known = tokens[-2:] in [text[at : at + 2] for at in range(len(text) - 1)]
    assert pairs.have_last_of(np.array(tokens, np.int32)) == (known and len(tokens) > 1)
    if not known and len(tokens) > 1:
        found = last_occurrence(array, np.array(tokens, np.int32))
        assert found is None or found.length == 1
