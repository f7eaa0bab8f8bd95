"""The fake runner must catch what it is there to catch."""

from __future__ import annotations

import numpy as np
import pytest

from sapwood.model.fake import FakeRunner
from sapwood.plan import SampleOrder, SequenceWork, StepPlan
from sapwood.types import SamplingParams, SeqId

GREEDY = SamplingParams(temperature=0.0, logprobs=2)


def ints(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, dtype=np.int32)


def work(seq: int, tokens: tuple[int, ...], start: int, pages: tuple[int, ...]) -> SequenceWork:
    return SequenceWork(SeqId(seq), ints(*tokens), start, ints(*pages))


def drawing(seq: int, history: tuple[int, ...], start: int, pages: tuple[int, ...]) -> SequenceWork:
    order = SampleOrder(GREEDY, 0, 0, len(history), ints(*history))
    return SequenceWork(SeqId(seq), ints(*history[start:]), start, ints(*pages), order)


def run(runner: FakeRunner, *works: SequenceWork) -> list[int]:
    result = runner.run(StepPlan(runner.steps + 1, works))
    return [answer.drawn.token for answer in result.results if answer.drawn is not None]


def test_chunks_and_pages_do_not_change_what_is_drawn() -> None:
    history = tuple(range(10))
    whole = run(FakeRunner(50, 4, 20), drawing(1, history, 0, (7, 3, 5)))
    runner = FakeRunner(50, 4, 20)
    run(runner, work(1, history[:3], 0, (2,)))
    run(runner, work(1, history[3:9], 3, (2, 9, 1)))
    assert run(runner, drawing(1, history, 9, (2, 9, 1))) == whole
    assert [entry.token for entry in runner.solo(history, GREEDY, 1)] == whole
    assert runner.computed_tokens == 10


def test_catches_pages_that_hold_something_else() -> None:
    runner = FakeRunner(50, 1, 20)
    run(runner, work(1, (1, 2, 3), 0, (0, 1, 2)), work(2, (5, 2, 9), 0, (3, 4, 5)))
    with pytest.raises(AssertionError, match="position 1 is read from a page that holds other KV"):
        run(runner, work(3, (4,), 3, (0, 4, 2, 6)))
    with pytest.raises(AssertionError, match="position 2"):
        run(runner, work(3, (4,), 3, (0, 1, 9, 6)))
    with pytest.raises(AssertionError, match="pages of another prompt"):
        run(runner, drawing(3, (1, 2, 4, 8), 3, (0, 1, 2, 6)))
    run(runner, drawing(3, (1, 2, 3, 8), 3, (0, 1, 2, 6)))


def test_catches_writes_into_a_page_that_another_reads() -> None:
    runner = FakeRunner(50, 4, 20)
    run(runner, work(1, (1, 2), 0, (0,)))
    with pytest.raises(AssertionError, match="names page 0 that 2 writes"):
        run(runner, work(2, (3,), 2, (0,)), work(1, (4,), 2, (0,)))
    run(runner, work(1, (3, 4), 2, (0,)))
    with pytest.raises(AssertionError, match="writes page 0 that 1 names"):
        run(runner, work(1, (5,), 4, (0, 3)), work(2, (6,), 0, (0,)))
    run(runner, work(1, (5,), 4, (0, 3)), work(2, (5,), 4, (0, 4)))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (work(1, (), 0, ()), "empty work"),
        (work(1, (1, 2), 0, (0,)), "1 pages for 2"),
        (work(1, (1, 2), 0, (0, 0)), "a page appears twice"),
    ],
)
def test_catches_malformed_work(bad: SequenceWork, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        run(FakeRunner(50, 1, 8), bad)


def test_a_failed_sequence_leaves_poison() -> None:
    runner = FakeRunner(50, 1, 20, hook=lambda _: frozenset({SeqId(1)}))
    result = runner.run(StepPlan(1, (work(1, (1, 2), 0, (0, 1)), work(2, (1, 2), 0, (2, 3)))))
    assert [answer.error is None for answer in result.results] == [False, True]
    with pytest.raises(AssertionError, match="position 0"):
        run(runner, work(3, (4,), 2, (0, 1, 6)))
    run(runner, work(4, (4,), 2, (2, 3, 6)))


def test_banned_tokens_are_not_drawn_and_logprobs_are_of_the_raw_distribution() -> None:
    runner = FakeRunner(8, 1, 8)
    (free,) = runner.solo((1, 2), GREEDY, 1)
    assert free.top[0] == (free.token, free.logprob)
    (banned,) = runner.solo(
        (1, 2), SamplingParams(temperature=0.0, logprobs=2, min_tokens=1), 1, end_tokens=(free.token,)
    )
    assert banned.top == free.top
    assert (banned.token, banned.logprob) == free.top[1]


def test_seeds_samples_and_positions_draw_apart() -> None:
    runner = FakeRunner(50, 1, 8)
    params = SamplingParams(max_tokens=12)
    draws = {
        runner.solo((1, 2), params, 12, seed=seed, sample=sample) for seed in (0, 1) for sample in (0, 1)
    }
    assert len(draws) == 4
    assert runner.solo((1, 2), params, 12, seed=1) == runner.solo((1, 2), params, 12, seed=1)
