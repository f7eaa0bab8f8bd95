"""Prompts that come again: the same bits as computed anew, and only for who could have computed them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from exact.lab import decoder_of, prompt_of
from model import tiny
from sapwood.model import ModelRunner, kv
from sapwood.model.last_tokens import LastTokens
from sapwood.plan import SampleOrder, SequenceWork, StepPlan
from sapwood.types import SamplingParams, SeqId

if TYPE_CHECKING:
    from sapwood.model.decoder import Decoder
    from sapwood.plan import SequenceResult

PROMPT = prompt_of(40)
N = len(PROMPT)
GREEDY = SamplingParams(temperature=0.0, logprobs=3)
PAGES = 300


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    return decoder_of(tiny.tiny_qwen3(tmp_path_factory.mktemp("qwen3")))


@pytest.fixture
def runner(decoder: Decoder) -> ModelRunner:
    return runner_of(decoder)


def runner_of(decoder: Decoder, page_size: int = 1, *, keeps: bool = True) -> ModelRunner:
    slot = kv.bytes_per_token(decoder.spec, "f16")
    pool = kv.allocate(decoder.spec, PAGES * page_size * slot, page_size, "f16")
    pool.k.fill(0)
    pool.v.fill(0)
    runner = ModelRunner(decoder, pool)
    if not keeps:
        runner.last_tokens = LastTokens(pool, most_bytes=0)
    return runner


def work(
    history: tuple[int, ...], start: int, pages: Any, *, seq: int = 1, prompt_len: int | None = None,
    draw: SamplingParams | None = GREEDY, score: int | None = None, whose: str | None = "a",
) -> SequenceWork:  # fmt: skip
    """Compute a sequence from `start` to its end, where it draws."""
    tokens = np.array(history, np.int32)
    order = None if draw is None else SampleOrder(draw, 5, 0, prompt_len or len(history), tokens)
    targets = None if score is None else tokens[start + 1 :]
    return SequenceWork(
        SeqId(seq), tokens[start:], start, np.array(pages, np.int32), order, score, targets, whose=whose
    )


def run(runner: ModelRunner, *works: SequenceWork) -> tuple[SequenceResult, ...]:
    return runner.run(StepPlan(7, works)).results


def again(page: int, **changes: Any) -> SequenceWork:
    """The prompt, all but its last token found in pages 0 .. N - 2; the last one goes into `page`."""
    return work(PROMPT, N - 1, [*range(N - 1), page], **changes)


def test_a_repeat_is_not_computed_and_gives_the_same_bits(runner: ModelRunner, decoder: Decoder) -> None:
    (cold,) = run(runner, work(PROMPT, 0, range(N)))
    assert not runner.recalled
    (warm,) = run(runner, again(200, seq=2))
    assert list(runner.recalled) == [2]
    (anew,) = run(bare := runner_of(decoder, keeps=False), work(PROMPT, 0, range(N), seq=2))
    assert not bare.recalled
    assert warm.drawn == cold.drawn == anew.drawn
    for array, other in ((runner.kv.k, bare.kv.k), (runner.kv.v, bare.kv.v)):
        assert array[:, 200].tobytes() == array[:, N - 1].tobytes() == other[:, N - 1].tobytes()


def test_every_way_to_draw_is_as_from_a_row_computed_anew(runner: ModelRunner, decoder: Decoder) -> None:
    bare = runner_of(decoder, keeps=False)
    for each in (runner, bare):
        run(each, work(PROMPT, 0, range(N)))
    for params in (GREEDY, SamplingParams(seed=3), SamplingParams(top_p=0.5, repetition_penalty=1.3)):
        assert run(runner, again(200, draw=params)) == run(bare, again(200, draw=params))
        assert runner.recalled
        assert not bare.recalled


def test_in_one_step_with_others_each_gets_its_own(runner: ModelRunner, decoder: Decoder) -> None:
    bare, other = runner_of(decoder, keeps=False), prompt_of(30)[::-1]
    for each in (runner, bare):
        run(each, work(PROMPT, 0, range(N)), work(other, 0, range(100, 130), seq=2))
    step = [
        work(other[:20], 18, [*range(100, 118), 201, 202], seq=3),
        again(203, seq=4),
        work(other, 29, [*range(100, 129), 204], seq=5),
        work(PROMPT[:9], 0, range(210, 219), seq=6, draw=None, score=1),
        work((*PROMPT, 7), N, [*range(N), 220], seq=7, prompt_len=N),
    ]
    assert run(runner, *step) == run(bare, *step)
    assert sorted(runner.recalled) == [4, 5]
    assert runner.kv.k.tobytes() == bare.kv.k.tobytes()
    assert runner.kv.v.tobytes() == bare.kv.v.tobytes()


@pytest.mark.parametrize(
    "other",
    [
        work((*PROMPT[:-1], 9), N - 1, [*range(N - 1), 200]),
        work(PROMPT, N - 1, [*range(100, 99 + N), 200]),
        work(PROMPT, N - 2, [*range(N - 2), 200, 201]),
        again(200, prompt_len=N - 1),
        again(200, draw=None),
        again(200, score=0),
        again(200, whose="b"),
        again(200, whose=None),
    ],
    ids=[
        "another token",
        "other pages",
        "more than one token",
        "an answer",
        "no draw",
        "scored",
        "another's",
        "nobody's",
    ],
)
def test_what_is_no_repeat_is_computed(other: SequenceWork, runner: ModelRunner) -> None:
    run(runner, work(PROMPT, 0, range(N)), work(PROMPT, 0, range(100, 100 + N), seq=2, draw=None))
    run(runner, other)
    assert not runner.recalled


def test_a_page_that_is_written_anew_recalls_nothing(runner: ModelRunner) -> None:
    """Whoever was given the page after an eviction has not computed what was there before."""
    run(runner, work(PROMPT, 0, range(N)))
    run(runner, work((1, 2, 3), 0, [250, N - 2, 251], seq=2, draw=None))
    run(runner, again(200))
    assert not runner.recalled


def test_a_flush_ends_all(runner: ModelRunner) -> None:
    run(runner, work(PROMPT, 0, range(N)))
    runner.run(StepPlan(8, (again(200),), flushes=1))
    assert not runner.recalled
    runner.run(StepPlan(9, (again(201),), flushes=1))
    assert runner.recalled


def test_a_page_may_be_of_several_who_are_apart(runner: ModelRunner) -> None:
    """A public prefix's pages are everybody's."""
    run(runner, work(PROMPT, 0, range(N)))
    for whose, known in (("b", False), ("a", True), ("b", True)):
        run(runner, again(200, whose=whose))
        assert bool(runner.recalled) == known
    run(runner, work((1, 2, 3), 0, [250, N - 2, 251], seq=2, draw=None))
    assert len(runner.last_tokens) == 0
    assert runner.last_tokens.nbytes == 0


def test_a_recall_writes_too(runner: ModelRunner) -> None:
    """The page that a repeated prompt's last token goes into may be one that something was kept under."""
    run(runner, work(PROMPT, 0, range(N)), work(PROMPT[:20], 0, range(100, 120), seq=2))
    run(runner, again(118, seq=3))
    assert list(runner.recalled) == [3]
    run(runner, work(PROMPT[:20], 19, [*range(100, 119), 200], seq=4))
    assert not runner.recalled


def test_a_row_that_is_not_finite_is_not_kept(runner: ModelRunner) -> None:
    run(runner, work(PROMPT[:10], 0, range(10), draw=None))
    runner.kv.k[0, 5] = np.nan
    (broken,) = run(runner, work(PROMPT[:11], 10, range(11)))
    assert broken.error is not None
    assert len(runner.last_tokens) == 0


def test_pages_of_several_tokens(decoder: Decoder) -> None:
    runner, bare = runner_of(decoder, 4), runner_of(decoder, 4, keeps=False)
    prompt = PROMPT[:21]  # The last token begins a page.
    for each in (runner, bare):
        run(each, work(prompt, 0, range(6)))
    repeat = work(prompt, 20, [*range(5), 9], seq=2)
    assert run(runner, repeat) == run(bare, repeat)
    assert list(runner.recalled) == [2]
    assert runner.kv.v.tobytes() == bare.kv.v.tobytes()


def test_it_holds_so_many_bytes_and_forgets_what_was_used_least_lately(decoder: Decoder) -> None:
    runner = runner_of(decoder)
    run(runner, work(PROMPT[:8], 0, range(8)))
    each = runner.last_tokens.nbytes
    runner.last_tokens = LastTokens(runner.kv, most_bytes=3 * each)

    def ask(first: int, *, start: int) -> bool:
        run(runner, work(PROMPT[:8], start, range(first, first + 8)))
        return bool(runner.recalled)

    for first in (0, 20, 40):
        ask(first, start=0)
    assert ask(0, start=7)
    ask(60, start=0)
    assert [ask(first, start=7) for first in (60, 40, 0)] == [True, True, True]
    assert runner.last_tokens.nbytes == 3 * each
    assert not ask(20, start=7)
