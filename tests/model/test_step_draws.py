"""Which rows of a step are drawn from at once, and which wait until their guess is known to be right."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from sapwood.model.ops_native import NativeOps
from sapwood.model.sampler import Drawn, Sampler
from sapwood.model.step_draws import StepDraws
from sapwood.plan import SampleOrder, SequenceWork
from sapwood.types import SamplingParams, SeqId

GREEDY = SamplingParams(temperature=0.0)


class CountingSampler(Sampler):
    def __init__(self) -> None:
        super().__init__(NativeOps(1))
        self.calls: list[int] = []

    def draw(self, rows: object, orders: object) -> list[Drawn]:
        self.calls.append(len(rows))  # type: ignore[arg-type]
        return super().draw(rows, orders)  # type: ignore[arg-type]


class Anything:
    """A guide that notes how long the texts are that it is asked about."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def mask(self, generated: NDArray[np.int32]) -> NDArray[np.bool_]:
        self.asked.append(len(generated))
        return np.ones(8, np.bool_)


def work(seq: int, draft: tuple[int, ...], guide: Anything | None = None) -> SequenceWork:
    tokens = np.array((1, *draft), np.int32)
    orders = [SampleOrder(GREEDY, 0, 0, 0, tokens[: n + 1], (), guide) for n in range(len(tokens))]
    pages = np.arange(len(tokens), dtype=np.int32)
    return SequenceWork(SeqId(seq), tokens, 0, pages, orders[0], guesses=tuple(orders[1:]))


def logits_of(*tokens: int) -> NDArray[np.float32]:
    return np.eye(8, dtype=np.float32)[list(tokens)]


def followed(draws: StepDraws, work: SequenceWork) -> list[int]:
    return [each.token for each in draws.followed(work, draws.first(work))]


def test_plain_rows_of_all_works_are_one_call() -> None:
    works = [work(1, (3, 4)), work(2, ()), work(3, (6, 6))]
    sampler = CountingSampler()
    draws = StepDraws(sampler, logits_of(3, 4, 5, 2, 6, 0, 1), works)
    assert [draws.first(each).token for each in works] == [3, 2, 6]
    assert followed(draws, works[0]) == [4, 5]
    assert followed(draws, works[2]) == [0]
    assert sampler.calls == [7]


def test_a_guide_is_asked_only_about_texts_that_were_written() -> None:
    guide = Anything()
    works = [work(1, (3, 7, 4), guide), work(2, (2,))]
    sampler = CountingSampler()
    draws = StepDraws(sampler, logits_of(3, 4, 5, 6, 2, 1), works)
    assert guide.asked == [1]
    assert followed(draws, works[0]) == [4]
    assert guide.asked == [1, 2]
    assert sampler.calls == [3, 1]


def test_a_failure_is_raised_to_who_asks_for_it() -> None:
    works = [work(1, ()), work(2, ())]
    rows = logits_of(3, 4)
    rows[0, 2] = np.nan
    draws = StepDraws(CountingSampler(), rows, works)
    with pytest.raises(ValueError, match="not finite"):
        draws.first(works[0])
    assert draws.first(works[1]).token == 4


def test_nothing_follows_a_work_without_guesses() -> None:
    works = [work(1, ()), work(2, ())]
    draws = StepDraws(CountingSampler(), logits_of(1, 2), works)
    assert draws.first(works[0]).token == works[0].tokens[-1]
    assert followed(draws, works[0]) == []
