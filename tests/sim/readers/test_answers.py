"""Answers that a log does not hold."""

from __future__ import annotations

import pytest

from sapwood.sim.readers.answers import UNKNOWN_TOKENS, Answers
from sapwood.sim.readers.call import Call


@pytest.mark.parametrize(
    ("lengths", "given", "tokens", "said"),
    [
        (
            [None, None],
            None,
            UNKNOWN_TOKENS,
            f"taken as {UNKNOWN_TOKENS} tokens each; --output-tokens N assumes",
        ),
        ([0, None], None, UNKNOWN_TOKENS, f"taken as {UNKNOWN_TOKENS} tokens each;"),
        (
            [10, None, 31],
            None,
            20,
            "taken as 20 tokens each, the mean of the 2 that are known; --output-tokens N",
        ),
        ([10, None, 31], 7, 7, "taken as 7 tokens each"),
    ],
)
def test_what_is_assumed_is_told(
    lengths: list[int | None], given: int | None, tokens: int, said: str
) -> None:
    answers = Answers.of(lengths, given)
    assert answers.tokens == tokens
    (note,) = answers.notes([Call(0.0, b"x")])
    assert note.startswith("1 answers are of unknown length and ")
    assert said in note
    assert ("--output-tokens" in note) == (given is None)


def test_none_is_longer_than_its_request_allows() -> None:
    answers = Answers.of([], 50)
    calls = [Call(0.0, b"x", limit=limit) for limit in (16, 50, 4096)]
    assert [answers.length(call) for call in calls] == [16, 50, 50]
    assert "1 of them as their max_tokens, which is less" in answers.notes(calls)[0]


def test_where_all_are_known_there_is_nothing_to_tell() -> None:
    assert Answers.of([3], None).notes([]) == ()
