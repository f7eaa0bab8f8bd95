from __future__ import annotations

import numpy as np
import pytest

from sapwood.cache import Namespace
from sapwood.sched.credit import Record
from sapwood.sched.replies import BESIDE, BUDGET, FRONT, MOST_TOKENS, Replies

A, B = Namespace("m", tenant="a"), Namespace("m", tenant="b")


def span(start: int, stop: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.arange(start, stop, dtype=np.int32)


def say(replies: Replies, namespace: Namespace, start: int, stop: int, prompt_len: int = 0) -> None:
    replies.add(namespace, span(start, stop), prompt_len, replies.record(namespace))


def test_answers_stand_behind_one_another_with_the_end_of_their_prompts() -> None:
    replies = Replies()
    say(replies, A, 0, 12, 10)
    say(replies, A, 50, 54, 2)
    assert replies.of(A).tolist() == [*range(10 - FRONT, 12), *range(50, 54)]


def test_each_namespace_has_its_own() -> None:
    replies = Replies()
    say(replies, A, 0, 12, 10)
    assert len(replies.of(B)) == 0
    say(replies, B, 20, 30, 8)
    assert set(replies.of(A).tolist()).isdisjoint(replies.of(B).tolist())
    replies.flush()
    assert len(replies.of(A)) == len(replies.of(B)) == replies.size == 0


@pytest.mark.parametrize("length", [1000, MOST_TOKENS, 3 * MOST_TOKENS])
def test_of_very_many_tokens_the_latest_are_kept(length: int) -> None:
    replies = Replies()
    for start in range(0, 5 * length, length):
        say(replies, A, start, start + length)
        said = replies.of(A)
        assert np.array_equal(said, span(0, start + length)[-MOST_TOKENS:])
        assert all(replies.may_go_on(A, said[:end]) for end in range(2, len(said) + 1))
        assert not replies.may_go_on(B, said)
        base = replies.of(A).base
        assert base is None or len(base) <= MOST_TOKENS, "no longer array is kept alive"


def test_all_are_kept_in_one_budget() -> None:
    replies = Replies()
    count = 2 * BUDGET // (BESIDE + 4 * MOST_TOKENS)
    names = [Namespace("m", tenant=str(n % 7), salt=str(n)) for n in range(count)]
    for name in names:
        say(replies, name, 0, MOST_TOKENS)
        assert replies.size <= BUDGET
    kept = [name for name in names if len(replies.of(name))]
    assert replies.size == len(kept) * (BESIDE + 4 * MOST_TOKENS) > BUDGET - BESIDE - 4 * MOST_TOKENS
    for tenant in range(7):
        of_one = [name for name in names if name.tenant == str(tenant)]
        kept_of_it = [name for name in kept if name.tenant == str(tenant)]
        assert kept_of_it == of_one[-len(kept_of_it) :]
        assert abs(len(kept_of_it) - len(kept) / 7) <= 1
    for number in range(2 * BUDGET // BESIDE):
        say(replies, Namespace("m", salt=str(number)), 0, 1)
    assert replies.size <= BUDGET, "very many short ones count too"


def test_who_has_most_of_it_loses_its_own() -> None:
    replies = Replies()
    say(replies, B, 0, 100)
    salts = [Namespace("m", tenant="a", salt=str(n)) for n in range(2 * BUDGET // (BESIDE + 4000))]
    for salt in salts:
        say(replies, salt, 0, 1000)
        say(replies, A, 0, 9)
    assert len(replies.of(B)) == 100
    assert len(replies.of(A)) > 0, "it was added to all the time"
    assert len(replies.of(salts[0])) == 0
    assert len(replies.of(salts[-1])) == 1000


def test_who_has_not_answered_has_nothing_that_is_kept() -> None:
    replies = Replies()
    replies.add(A, span(0, 12), 12, Record())
    assert len(replies.of(A)) == 0, "a prompt alone is no answer"
    for number in range(1000):
        replies.record(Namespace("m", tenant="a", salt=str(number)))
    assert replies.size == 0


def test_how_often_guesses_were_right_is_kept_from_the_first_answer_on() -> None:
    replies = Replies()
    first, second = replies.record(A), replies.record(A)
    assert first is not second
    replies.add(A, span(0, 9), 4, first)
    replies.add(A, span(0, 9), 4, second)
    assert replies.record(A) is first
    replies.flush()
    assert replies.record(A) is not first
