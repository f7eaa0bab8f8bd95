from __future__ import annotations

import numpy as np

from sapwood.cache import Namespace
from sapwood.sched.replies import FRONT, MOST_NAMESPACES, MOST_TOKENS, Replies

A, B = Namespace("m", tenant="a"), Namespace("m", tenant="b")


def span(start: int, stop: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.arange(start, stop, dtype=np.int32)


def test_answers_stand_behind_one_another_with_the_end_of_their_prompts() -> None:
    replies = Replies()
    replies.add(A, span(0, 12), 10)
    replies.add(A, span(50, 54), 2)
    assert replies.of(A).tolist() == [*range(10 - FRONT, 12), *range(50, 54)]


def test_each_namespace_has_its_own() -> None:
    replies = Replies()
    replies.add(A, span(0, 12), 10)
    assert len(replies.of(B)) == 0
    replies.add(B, span(20, 30), 8)
    assert set(replies.of(A).tolist()).isdisjoint(replies.of(B).tolist())
    replies.flush()
    assert len(replies.of(A)) == len(replies.of(B)) == 0


def test_of_very_many_tokens_the_latest_are_kept() -> None:
    replies = Replies()
    for start in range(0, 20 * MOST_TOKENS, 1000):
        replies.add(A, span(start, start + 1000), 0)
        kept = replies.of(A)
        assert kept[-1] == start + 999
        assert np.array_equal(kept, span(start + 1000 - len(kept), start + 1000))
    assert MOST_TOKENS <= len(replies.of(A)) <= 2 * MOST_TOKENS
    replies.add(A, span(0, 3 * MOST_TOKENS), 1)
    assert replies.of(A)[-1] == 3 * MOST_TOKENS - 1
    assert len(replies.of(A)) <= 2 * MOST_TOKENS


def test_of_very_many_namespaces_those_that_answered_last_are_kept() -> None:
    replies = Replies()
    for number in range(MOST_NAMESPACES + 5):
        replies.add(Namespace("m", salt=str(number)), span(0, 9), 4)
        replies.add(A, span(0, 9), 4)
    assert len(replies.of(Namespace("m", salt="0"))) == 0
    assert len(replies.of(Namespace("m", salt=str(MOST_NAMESPACES + 4)))) == 9
    assert len(replies.of(A)) > 0


def test_a_prompt_alone_is_no_answer() -> None:
    replies = Replies()
    replies.add(A, span(0, 12), 12)
    assert len(replies.of(A)) == 0
