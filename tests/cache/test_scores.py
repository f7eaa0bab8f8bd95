"""Scores kept of prompts: what was put in comes out, up to where two prompts part, and no more than fits is kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.cache import Namespace, ScoreStore, Trail
from sapwood.cache.scores import CHUNK, MOST_TOP
from sapwood.types import TokenLogprob

OURS, THEIRS = Namespace("model", tenant="ours"), Namespace("model", tenant="theirs")
PLENTY = 2**30

Prompt = tuple[int, ...]


def trail(prompt: Prompt, namespace: Namespace = OURS) -> Trail:
    return Trail(namespace, np.array(prompt, np.int32))


def score(prompt: Prompt, index: int, top: int) -> TokenLogprob:
    """Of the token at an index: a function of all tokens up to it, as a model's is."""
    seed = abs(hash(prompt[: index + 1])) % 2**32
    values = [float(each) for each in np.random.default_rng(seed).standard_normal(top + 1)]
    return TokenLogprob(prompt[index], values[0], tuple(enumerate(values[1:])))


def scores(prompt: Prompt, first: int, top: int, end: int | None = None) -> list[TokenLogprob]:
    return [score(prompt, index, top) for index in range(first, len(prompt) if end is None else end)]


def put(store: ScoreStore, prompt: Prompt, first: int = 1, top: int = 1, end: int | None = None) -> None:
    entries = scores(prompt, first, top, end)
    store.add(trail(prompt), first, entries, len(entries), top)
    store.check()


def some(length: int, salt: int = 0) -> Prompt:
    return tuple(np.random.default_rng(salt).integers(0, 1000, length).tolist())


@pytest.mark.parametrize("length", [2, 3, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 7])
@pytest.mark.parametrize("first", [1, 2, CHUNK, CHUNK + 3])
def test_what_was_put_in_comes_out_to_the_bit(length: int, first: int) -> None:
    store, prompt = ScoreStore(PLENTY), some(length)
    first = min(first, length)
    put(store, prompt, first, top=3)
    assert store.known(trail(prompt), first, 3) == length - first
    assert store.read(trail(prompt), first, 3) == scores(prompt, first, 3)


@pytest.mark.parametrize("shared", [0, 1, 5, CHUNK - 1, CHUNK, CHUNK + 1, 70])
def test_prompts_share_scores_up_to_the_token_where_they_part(shared: int) -> None:
    store, prompt = ScoreStore(PLENTY), some(100)
    put(store, prompt)
    other = prompt[:shared] + some(30, salt=1)
    assert store.read(trail(other), 1, 1) == scores(prompt, 1, 1, shared) if shared else True
    assert store.known(trail(other), 1, 1) == max(0, shared - 1)


def test_of_many_that_part_in_one_chunk_the_nearest_is_found() -> None:
    store, trunk = ScoreStore(PLENTY), some(10)
    for salt in range(1, 50):
        put(store, trunk + some(12, salt=salt))
    for salt in range(1, 50):
        asked = trunk + some(12, salt=salt)[:7] + (5000,)
        assert store.known(trail(asked), 1, 1) == 16
        assert store.read(trail(asked), 1, 1) == scores(asked, 1, 1, 17)


def test_fewer_top_entries_than_were_kept_are_a_hit_and_more_are_not() -> None:
    store, prompt = ScoreStore(PLENTY), some(40)
    put(store, prompt, top=3)
    assert [entry.top for entry in store.read(trail(prompt), 1, 1)] == [
        entry.top[:1] for entry in scores(prompt, 1, 3)
    ]
    assert store.known(trail(prompt), 1, 0) == 39
    assert store.known(trail(prompt), 1, 4) == 0


def test_what_was_scored_from_later_on_is_not_known_before() -> None:
    store, prompt = ScoreStore(PLENTY), some(80)
    put(store, prompt, first=50)
    assert [store.known(trail(prompt), first, 1) for first in (1, 49, 50, 51)] == [0, 0, 30, 29]
    put(store, prompt, first=1, end=60)
    assert store.known(trail(prompt), 1, 1) >= 59


def test_a_longer_run_that_begins_later_takes_nothing_from_an_earlier_one() -> None:
    store, prompt = ScoreStore(PLENTY), some(CHUNK)
    put(store, prompt, first=1, end=10)
    put(store, prompt, first=5)
    assert [store.known(trail(prompt), first, 1) for first in (1, 5, 9)] == [9, CHUNK - 5, CHUNK - 9]


def test_scopes_never_meet() -> None:
    store, prompt = ScoreStore(PLENTY), some(40)
    put(store, prompt)
    assert store.known(trail(prompt, THEIRS), 1, 1) == 0


def test_a_flush_forgets_and_begins_another_epoch() -> None:
    store, prompt = ScoreStore(PLENTY), some(40)
    put(store, prompt)
    store.flush()
    store.check()
    assert (store.known(trail(prompt), 1, 1), store.nbytes, store.epoch) == (0, 0, 1)


def test_a_prompt_added_piece_by_piece_is_kept_once() -> None:
    whole, pieces = ScoreStore(PLENTY), ScoreStore(PLENTY)
    prompt = some(150)
    put(whole, prompt)
    entries = scores(prompt, 1, 1)
    for end in (*range(7, 149, 7), 149):
        pieces.add(trail(prompt), 1, entries[:end], end % 7 or 7, 1)
        pieces.check()
    assert pieces.known(trail(prompt), 1, 1) == 149
    assert pieces.nbytes == whole.nbytes


def test_what_was_not_used_for_the_longest_time_goes_from_its_end_on() -> None:
    one = ScoreStore(PLENTY)
    put(one, some(4 * CHUNK))
    store = ScoreStore(3 * one.nbytes)
    for salt in range(3):
        put(store, some(4 * CHUNK, salt=salt))
    store.read(trail(some(4 * CHUNK)), 1, 1)
    put(store, some(2 * CHUNK, salt=9))
    known = [store.known(trail(some(4 * CHUNK, salt=salt)), 1, 1) for salt in (0, 1, 2, 9)]
    assert known == [4 * CHUNK - 1, 2 * CHUNK - 1, 4 * CHUNK - 1, 2 * CHUNK - 1]


def test_nothing_is_kept_where_there_is_no_room_or_the_entries_are_too_many() -> None:
    prompt = some(40)
    for store, top in ((ScoreStore(0), 1), (ScoreStore(PLENTY), MOST_TOP + 1)):
        put(store, prompt, top=top)
        assert (store.nbytes, store.known(trail(prompt), 1, 0)) == (0, 0)


# Prompts over two tokens, so that they share prefixes of all lengths.
asks = st.tuples(
    st.lists(st.integers(0, 1), min_size=1, max_size=12).map(
        lambda bits: tuple(bit for bit in bits for _ in range(9))
    ),
    st.integers(1, 60),
    st.sampled_from([0, 1, 1, 4]),
    st.integers(0, 110),
    st.booleans(),
)


@given(st.lists(asks, min_size=1, max_size=25), st.sampled_from([PLENTY, 20_000, 4_000]))
@settings(max_examples=60)
def test_whatever_was_added_all_that_is_known_is_right(
    traffic: list[tuple[Prompt, int, int, int, bool]], capacity: int
) -> None:
    store = ScoreStore(capacity)
    for prompt, start, top, end, adds in traffic:
        first = min(start, len(prompt))
        known = store.known(trail(prompt), first, top)
        read = store.read(trail(prompt), first, top)
        assert len(read) == known
        for entry, index in zip(read, range(first, len(prompt)), strict=False):
            # Those with more top entries were scored by themselves, so their numbers differ.
            assert entry.token == prompt[index]
            assert any(
                entry.logprob == score(prompt, index, kept).logprob
                and entry.top == score(prompt, index, kept).top[:top]
                for kept in (0, 1, 4)
                if kept >= top
            )
        if adds and first < end <= len(prompt):
            put(store, prompt, first, top, end)
            if capacity == PLENTY:
                assert store.known(trail(prompt), first, top) >= end - first
        store.check()
        assert store.nbytes <= capacity
