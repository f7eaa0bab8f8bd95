"""What is kept of answers: whose, under which words, and how much."""

from __future__ import annotations

import threading

import pytest

from sapwood.chat import Message
from sapwood.chat.messages import ToolCall
from sapwood.chat.replies import MOST_ALIKE, Opening, ReplyStore, Told, ToldCall
from sapwood.types import Scope

ALICE, BOB = Scope(tenant="alice"), Scope(tenant="bob")


def opening(start: int = 10, turn: int = 1) -> Opening:
    return Opening(turn, start, b"text", b"ids")


def found(store: ReplyStore, scope: Scope, told: Told, turn: int = 1) -> list[list[int]]:
    return [reply.ids for reply in store.of(scope).find(turn, told)]


def test_an_answer_is_found_by_its_scope_its_turn_and_its_words() -> None:
    store, told = ReplyStore(), Told("yes")
    assert not store.of(ALICE).any()
    store.of(ALICE).add(opening(), told, [1, 2])
    assert store.of(ALICE).any()
    assert not store.of(BOB).any()
    assert found(store, ALICE, told) == [[1, 2]]
    assert found(store, ALICE, told, turn=3) == []
    assert found(store, ALICE, Told("yes.")) == []
    assert found(store, BOB, told) == []
    assert found(store, Scope(tenant="alice", salt="s"), told) == []
    assert found(store, Scope(tenant="alice", adapter="a"), told) == []


def test_of_equal_words_after_one_prompt_the_first_tokens_stay() -> None:
    store, told = ReplyStore(), Told("yes")
    store.of(ALICE).add(opening(), told, [1, 2])
    store.of(ALICE).add(opening(), told, [3])
    store.of(ALICE).add(opening(start=11), told, [4])
    assert found(store, ALICE, told) == [[1, 2], [4]]


@pytest.mark.parametrize(
    ("arguments", "equal"),
    [
        ('{"b": [1, 2], "a": "x"}', True),
        ('{"a":"x","b":[1,2]}', True),
        ('{"a": "\\u0078", "b": [1, 2]}', True),
        ('{"a": "x", "b": [2, 1]}', False),
        ('{"a": "x", "b": [1, 2.0]}', False),
        ('{"a": "x", "b": [true, 2]}', False),
        ('{"a": "x"', False),
    ],
)
def test_arguments_are_equal_as_json(arguments: str, equal: bool) -> None:
    one, other = (Told("", (ToldCall("f", each),)) for each in ('{"a": "x", "b": [1, 2]}', arguments))
    assert (one.digest() == other.digest()) == equal


def test_no_part_is_taken_for_another() -> None:
    parts = [
        Told("ab"),
        Told("a", reasoning="b"),
        Told("", reasoning="ab"),
        Told("a", (ToldCall("b", "{}"),)),
        Told("", (ToldCall("ab", "{}"),)),
        Told("", (ToldCall("a", "{}"), ToldCall("b", "{}"))),
        Told("", (ToldCall("b", "{}"), ToldCall("a", "{}"))),
    ]
    assert len({told.digest() for told in parts}) == len(parts)


def test_text_around_calls_is_one_however_it_was_split() -> None:
    calls = (ToolCall("id", "f", "{}"),)
    split = Told.of(Message("assistant", ("a", "b"), tool_calls=calls))
    assert (
        split
        == Told.of(Message("assistant", ("ab",), tool_calls=calls))
        == Told("ab", (ToldCall("f", "{}"),))
    )
    assert Told.of(Message("assistant", ("a", "b"))) == Told("a\nb")


def test_when_it_is_full_who_has_the_most_loses_the_least_lately_used() -> None:
    store = ReplyStore(most_bytes=10_000)
    store.of(BOB).add(opening(), Told("bob's"), [7])
    for i in range(40):
        store.of(ALICE).add(opening(), Told(str(i)), [i])
        assert found(store, ALICE, Told("0")) == [[0]]
        assert store.size <= 10_000
    assert found(store, BOB, Told("bob's")) == [[7]]
    assert found(store, ALICE, Told("39")) == [[39]]
    assert found(store, ALICE, Told("1")) == []


def test_an_answer_larger_than_the_store_leaves_nothing_behind() -> None:
    store = ReplyStore(most_bytes=1000)
    store.of(ALICE).add(opening(), Told("long"), range(1000))
    assert store.size == 0
    assert not store.of(ALICE).any()


def test_few_answers_of_equal_words_are_kept() -> None:
    store, told = ReplyStore(), Told("yes")
    for i in range(MOST_ALIKE + 3):
        store.of(ALICE).add(opening(start=i), told, [i])
    assert found(store, ALICE, told) == [[i] for i in range(3, MOST_ALIKE + 3)]
    one = ReplyStore()
    one.of(ALICE).add(opening(), told, [1])
    assert store.size == MOST_ALIKE * one.size


def test_any_thread_may_add_and_find() -> None:
    store = ReplyStore(most_bytes=20_000)

    def work(scope: Scope) -> None:
        for i in range(300):
            store.of(scope).add(opening(start=i), Told(str(i % 50)), [i])
            store.of(scope).find(1, Told(str(i % 50)))

    threads = [threading.Thread(target=work, args=(Scope(tenant=str(n)),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 < store.size <= 20_000
