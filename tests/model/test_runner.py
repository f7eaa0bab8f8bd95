"""One step: draws, scores, mixed works, and failures that stay with their sequence."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from exact.lab import decoder_of, prompt_of
from model import tiny
from sapwood.errors import DeadEndError
from sapwood.model import ModelRunner, kv
from sapwood.plan import SampleOrder, SequenceWork, StepPlan
from sapwood.types import SamplingParams, SeqId, TokenLogprob

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sapwood.model.decoder import Decoder
    from sapwood.plan import SequenceResult
    from sapwood.types import TokenLogprob

PROMPT = prompt_of(150)
GREEDY = SamplingParams(temperature=0.0, logprobs=3)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    return decoder_of(tiny.tiny_qwen3(tmp_path_factory.mktemp("qwen3")))


@pytest.fixture
def runner(decoder: Decoder) -> ModelRunner:
    """512 pages of one token, all NaN at first."""
    pool = kv.allocate(decoder.spec, 512 * kv.bytes_per_token(decoder.spec, "f16"), 1, "f16")
    pool.k.fill(np.nan)
    pool.v.fill(np.nan)
    return ModelRunner(decoder, pool)


def work(
    tokens: tuple[int, ...], start: int = 0, first_page: int = 0, *, seq: int = 1, draw: SamplingParams | None = None,
    score: int | None = None, targets: tuple[int, ...] = (),
) -> SequenceWork:  # fmt: skip
    """Compute `tokens` from `start` on, in pages that follow one another."""
    history = np.array((0,) * start + tokens, np.int32)
    return SequenceWork(
        SeqId(seq),
        np.array(tokens, np.int32),
        start,
        np.arange(first_page, first_page + start + len(tokens), dtype=np.int32),
        None if draw is None else SampleOrder(draw, 0, 0, len(history), history),
        score,
        None if score is None else np.array(targets, np.int32),
    )


def run(runner: ModelRunner, *works: SequenceWork) -> tuple[SequenceResult, ...]:
    result = runner.run(StepPlan(7, works))
    assert result.step == 7
    assert [r.seq for r in result.results] == [w.seq for w in works]
    return result.results


def test_only_what_was_ordered_is_reported(runner: ModelRunner) -> None:
    plain, drawing, scoring = run(
        runner,
        work(PROMPT[:5], seq=3),
        work(PROMPT[:5], seq=1, first_page=10, draw=GREEDY),
        work(PROMPT[:5], seq=2, first_page=20, score=0, targets=PROMPT[1:5]),
    )
    assert (plain.drawn, plain.scores, plain.error) == (None, (), None)
    assert drawing.drawn is not None
    assert len(drawing.drawn.top) == 3
    assert scoring.drawn is None
    assert [entry.token for entry in scoring.scores] == list(PROMPT[1:5])


def test_scores_are_what_drawing_there_would_report(runner: ModelRunner) -> None:
    """The logprob of token i + 1 at position i, bit for bit, over more rows than are scored at once."""
    (scored,) = run(runner, work(PROMPT, score=2, targets=PROMPT[1:]))
    assert len(scored.scores) == len(PROMPT) - 1
    for position in (0, 1, 62, 63, 64, 127, 128, 148):
        (drawn,) = run(
            runner, work((PROMPT[position],), position, draw=SamplingParams(temperature=0.0, logprobs=320))
        )
        assert drawn.drawn is not None
        assert scored.scores[position].logprob == dict(drawn.drawn.top)[PROMPT[position + 1]]
        assert scored.scores[position].top == drawn.drawn.top[:2]


def test_a_draw_is_from_the_last_row(runner: ModelRunner) -> None:
    run(runner, work(PROMPT[:29]))
    (step_by_step,) = run(runner, work((PROMPT[29],), 29, draw=GREEDY))
    other = work(PROMPT[:11], first_page=100, seq=2, draw=GREEDY)
    at_once, _ = run(runner, work(PROMPT[:30], first_page=200, draw=GREEDY), other)
    assert at_once == step_by_step


def test_scores_do_not_depend_on_the_split(runner: ModelRunner) -> None:
    (whole,) = run(runner, work(PROMPT, score=1, targets=PROMPT[1:]))
    parts: tuple[TokenLogprob, ...] = ()
    for start in range(0, 150, 70):
        tokens = PROMPT[start : start + 70]
        (part,) = run(runner, work(tokens, start, 200, score=1, targets=PROMPT[start + 1 : start + 71]))
        parts += part.scores
    assert parts == whole.scores


def test_a_work_can_score_and_draw(runner: ModelRunner) -> None:
    (both,) = run(runner, work(PROMPT[:9], draw=GREEDY, score=0, targets=PROMPT[1:9]))
    (drawing,) = run(runner, work(PROMPT[:9], first_page=50, draw=GREEDY))
    assert len(both.scores) == 8
    assert both.drawn == drawing.drawn


def test_a_sequence_without_finite_logits_fails_alone(runner: ModelRunner) -> None:
    """Its pages hold NaN, as a broken weight would leave them."""
    run(runner, work(PROMPT[:20]), work(PROMPT[:20], first_page=100))
    good = work((5,), 20, draw=GREEDY)
    (alone,) = run(runner, good)
    runner.kv.k[0, 105] = np.nan
    broken = work((5,), 20, 100, seq=2, draw=GREEDY)
    also_broken = work((5, 6), 20, 100, seq=3, score=0, targets=(6,))
    ill, well, scored = run(runner, broken, good, also_broken)
    assert ill.error == scored.error == "the model gave a logit that is not finite"
    assert (ill.drawn, scored.scores) == (None, ())
    assert well == alone


class NanRow:
    """A decoder whose logits are NaN in one row."""

    def __init__(self, decoder: Decoder, row: int) -> None:
        self._decoder, self._row = decoder, row
        self.forward = decoder.forward

    def logits(self, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        out = self._decoder.logits(hidden)
        out[self._row, 11] = np.nan
        return out


@pytest.mark.parametrize("row", [0, 1, 2])
def test_one_row_of_nan_spoils_one_sequence(row: int, runner: ModelRunner, decoder: Decoder) -> None:
    works = [work(PROMPT[: 3 + i], first_page=20 * i, seq=i, draw=GREEDY) for i in range(3)]
    expected = list(run(runner, *works))
    runner.decoder = cast("Any", NanRow(decoder, row))
    found = list(run(runner, *works))
    assert found[row].error is not None
    del found[row], expected[row]
    assert found == expected


def test_an_order_that_breaks_the_sampler_spoils_one_sequence(runner: ModelRunner) -> None:
    run(runner, work(PROMPT[:20]))
    good = work((5,), 20, draw=GREEDY)
    (alone,) = run(runner, good)
    order = work((5,), 0, 100, seq=2, draw=GREEDY)
    assert order.sample is not None
    broken = replace(order, sample=replace(order.sample, banned=(10**6,)))
    ill, well = run(runner, broken, good)
    assert ill.error is not None
    assert "IndexError" in ill.error
    assert well == alone


@pytest.mark.parametrize(("name", "value"), [("top_k", 40.0), ("logprobs", 5.0), ("min_p", None)])
def test_an_order_that_the_ops_refuse_spoils_one_sequence(
    runner: ModelRunner, name: str, value: object
) -> None:
    run(runner, work(PROMPT[:20]))
    good = work((5,), 20, draw=GREEDY)
    (alone,) = run(runner, good)
    assert alone.drawn is not None
    params = SamplingParams()
    object.__setattr__(params, name, value)  # past its own checks
    ill, well = run(runner, work((5,), 0, 100, seq=2, draw=params), good)
    assert ill.error is not None
    assert "TypeError" in ill.error
    assert well == alone


@pytest.mark.parametrize(
    "bad",
    [
        work((5, 320)),
        work((5, -1)),
        work((5, 6), first_page=511),
        work((5, 6), first_page=-1),
        SequenceWork(SeqId(1), np.array([5, 6], np.int32), 0, np.array([3], np.int32)),
        SequenceWork(SeqId(1), np.array([5, 6], np.int32), 4, np.array([3, 4], np.int32)),
    ],
    ids=["token beyond", "token below", "page beyond", "page below", "short table", "table without its past"],
)
def test_a_plan_that_does_not_fit_is_refused(bad: SequenceWork, runner: ModelRunner) -> None:
    with pytest.raises(ValueError, match=r"vocabulary|page"):
        run(runner, work(PROMPT[:5], first_page=300, draw=GREEDY), bad)


def test_pages_of_other_sequences_are_left_alone(runner: ModelRunner) -> None:
    run(runner, work(PROMPT[:8]), work(PROMPT[:3], first_page=100))
    written = {*range(8), *range(100, 103)}
    for array in (runner.kv.k, runner.kv.v):
        untouched = np.isnan(array).all(axis=(0, 2, 3, 4))
        assert set(np.flatnonzero(~untouched).tolist()) == written
        assert not np.isnan(array[:, sorted(written)]).any()


DRAFTED = {
    "greedy": SamplingParams(temperature=0.0, logprobs=3),
    "sampled": SamplingParams(temperature=1.0, top_k=50, top_p=0.9, logprobs=0),
    "penalised": SamplingParams(
        temperature=0.7,
        repetition_penalty=1.3,
        presence_penalty=0.5,
        frequency_penalty=0.4,
        logit_bias={5: 2.0},
    ),
    "banned": SamplingParams(temperature=0.0, min_tokens=4),
}


def orders(params: SamplingParams, tokens: tuple[int, ...], count: int) -> tuple[SampleOrder, ...]:
    """The draws behind all but the last count - 1 tokens, behind all but the last count - 2, …"""
    history, prompt = np.array(tokens, np.int32), 20
    return tuple(
        SampleOrder(params, 3, 0, prompt, history[:end], (7, 8) if end - prompt < params.min_tokens else ())
        for end in range(len(tokens) - count + 1, len(tokens) + 1)
    )


@pytest.mark.parametrize("params", DRAFTED.values(), ids=DRAFTED.keys())
@pytest.mark.parametrize("wrong", [None, 0, 2, 5])
def test_drawing_behind_guesses_is_drawing_one_by_one(
    runner: ModelRunner, params: SamplingParams, wrong: int | None
) -> None:
    """The same bits, up to the first guess that is wrong; what it wrote is written over."""
    tokens, drawn = PROMPT[:21], list[TokenLogprob]()
    run(runner, work(tokens[:20]))
    for start in range(20, 27):
        step = replace(work(tokens[start:], start), sample=orders(params, tokens, 1)[0])
        (one,) = run(runner, step)
        assert one.drawn is not None
        drawn.append(one.drawn)
        tokens += (one.drawn.token,)
    guessed = tuple((t + 1) % 320 if at == wrong else t for at, t in enumerate(tokens[21:27]))
    run(runner, work(tokens[:20], first_page=200))
    sample, *guesses = orders(params, tokens[:21] + guessed, 7)
    speculative = work(tokens[20:21] + guessed, 20, first_page=200)
    other = work(PROMPT[:11], first_page=100, seq=2, draw=GREEDY)
    at_once, beside = run(runner, replace(speculative, sample=sample, guesses=tuple(guesses)), other)
    right = 6 if wrong is None else wrong
    assert (at_once.drawn, *at_once.followed) == tuple(drawn[: right + 1])
    assert beside.followed == ()
    if right < 6:
        resumed = 21 + right
        rest = work(tokens[resumed : resumed + 1], resumed, first_page=200)
        (after,) = run(runner, replace(rest, sample=orders(params, tokens[: resumed + 1], 1)[0]))
        assert after.drawn == drawn[right + 1]


def test_a_draw_that_fails_behind_a_guess_is_left_to_its_own_step(runner: ModelRunner) -> None:
    class Ends:
        def mask(self, generated: NDArray[np.int32]) -> NDArray[np.bool_]:
            if len(generated) > 1:
                raise DeadEndError("nothing may follow")
            return np.ones(320, np.bool_)

    (first,) = run(runner, work(PROMPT[:20], draw=SamplingParams(temperature=0.0)))
    assert first.drawn is not None
    sample, *guesses = orders(SamplingParams(temperature=0.0), (*PROMPT[:20], first.drawn.token), 2)
    speculative = replace(
        work((*PROMPT[:20], first.drawn.token), first_page=100),
        sample=replace(sample, guide=Ends()),
        guesses=(replace(guesses[0], guide=Ends(), prompt_len=18),),
    )
    (result,) = run(runner, speculative)
    assert (result.error, result.drawn, result.followed) == (None, first.drawn, ())
