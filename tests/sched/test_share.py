"""How a step's budget is split among those that read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.cache import Namespace
from sapwood.sched import Sequence
from sapwood.sched.share import Share
from sapwood.types import Request, SamplingParams, SeqId


def reader(number: int, gap: int) -> Sequence:
    prompt = np.zeros(gap, np.int32)
    request = Request(f"r{number}", (0,), SamplingParams())
    return Sequence(SeqId(number), request, Namespace("m"), prompt, arrival=number, max_len=gap + 9)


def split(budget: int, *gaps: int, newcomers: tuple[int, ...] = ()) -> list[int]:
    """Tokens per reader, then per newcomer."""
    sequences = [reader(number, gap) for number, gap in enumerate((*gaps, *newcomers))]
    share = Share(budget, sequences[: len(gaps)])
    for sequence in sequences[len(gaps) :]:
        if share.offer(sequence.gap):
            share.admit(sequence)
    given = {sequence.id: tokens for sequence, tokens in share.given()}
    return [given.get(sequence.id, 0) for sequence in sequences]


@pytest.mark.parametrize(
    ("gaps", "given"),
    [
        ((30,), [30]),
        ((500,), [100]),
        ((500, 20), [80, 20]),  # The short one is done at once, the first takes the rest.
        ((500, 80, 20), [50, 30, 20]),  # Half is promised to the first; the shortest goes before the other.
        ((500, 400), [100, 0]),  # Not so much shorter that both would be done sooner.
        ((60, 400), [60, 40]),
        ((60, 40, 400), [60, 40, 0]),
        ((500, 249, 10, 10, 10), [50, 20, 10, 10, 10]),
        ((500, 250), [100, 0]),
    ],
)
def test_splits_of_a_hundred(gaps: tuple[int, ...], given: list[int]) -> None:
    assert split(100, *gaps) == given


def test_a_newcomer_goes_before_a_longer_one_but_takes_nothing_from_another_newcomer() -> None:
    assert split(100, 500, 80, newcomers=(20,)) == [50, 30, 20]
    assert split(100, 500, 80, newcomers=(60, 20)) == [50, 0, 50, 0]
    assert split(100, 500, newcomers=(400,)) == [100, 0]
    assert split(100, 50, newcomers=(400, 20)) == [50, 50, 0]


def test_with_nobody_reading_the_first_newcomer_takes_what_the_others_leave() -> None:
    assert split(100, newcomers=(500, 20, 400, 10)) == [70, 20, 0, 10]
    assert split(100, newcomers=(60, 500)) == [60, 40]


def test_no_budget_is_closed_and_gives_nothing() -> None:
    share = Share(0, [reader(1, 5)])
    assert not share.open
    assert share.given() == []
    assert not Share(0, []).open


@given(
    st.integers(0, 300),
    st.lists(st.integers(2, 600), max_size=12),
    st.lists(st.integers(1, 600), max_size=12),
)
def test_a_budget_is_never_exceeded_nor_wasted_and_the_first_has_half(
    budget: int, gaps: list[int], newcomers: list[int]
) -> None:
    given = split(budget, *gaps, newcomers=tuple(newcomers))
    lacking = [*gaps, *newcomers]
    assert all(0 <= tokens <= gap for tokens, gap in zip(given, lacking, strict=True))
    assert sum(given) == min(budget, sum(lacking))
    if gaps:
        assert given[0] >= min(gaps[0], -(-budget // 2))
