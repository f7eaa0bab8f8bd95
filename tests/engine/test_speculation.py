"""Guessing ahead changes when things are said, never what: answers, counts and the tree are those without it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from cache.helpers import prefixes_of
from engine.prophet import Prophet
from engine.rig import VOCAB, Log, Rig, greedy, prompt_of
from engine.test_guides import EVEN, SumsMaker, expect_obedient, guided
from sapwood.config import IndexName
from sapwood.errors import DeadEndError
from sapwood.plan import StepPlan
from sapwood.sched.credit import ALLOWANCE, FIRST
from sapwood.sched.replies import FRONT
from sapwood.types import Constraint, Request, SamplingParams, Scope, SeqId, Usage


def rows_cost(slope: float) -> dict[str, object]:
    """A step of one token takes a second, each further one `slope` of that."""
    return {"seconds": lambda tokens: 1 + slope * (tokens - 1)}


def without_guesses(usage: Usage) -> Usage:
    """What may differ: how much was guessed, and what depends on the time that steps take."""
    return replace(usage, guessed=0, guessed_right=0, saved_seconds=None)


# ---- what is said ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", ["radix", "blocks", "none"])
@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize(
    "params",
    [
        greedy(40),
        greedy(40, logprobs=3),
        SamplingParams(max_tokens=40, seed=3, n=3, logprobs=0),
        SamplingParams(max_tokens=30, seed=4, best_of=4, n=2),
        SamplingParams(max_tokens=60, temperature=1.0, seed=5, stop=("ab", "c", "ez"), min_tokens=5),
        SamplingParams(max_tokens=60, seed=6, stop_token_ids=(3, 4, 5), min_tokens=12),
        greedy(1),
        greedy(0),
        greedy(2),
    ],
    ids=lambda params: f"{params.max_tokens}-{params.drawn}-{bool(params.stop)}-{params.seed}",
)
def test_answers_usage_and_tree_are_those_without(
    params: SamplingParams, page_size: int, index: IndexName
) -> None:
    """Stop strings, end tokens and most tokens fall into the middle of drafts here."""
    rigs = [Rig(page_size=page_size, index=index, eos=(0,), speculate=each) for each in ("off", "auto")]
    prophet = Prophet.take_over(rigs[1], wrong=0.1)
    for salt in (0, 1, 0, 40, 2, 0):
        plain, guessed = (rig.ask(prompt_of(30, salt), params) for rig in rigs)
        rigs[1].expect_solo(guessed)
        assert guessed.samples == plain.samples
        assert without_guesses(guessed.usage) == without_guesses(plain.usage)
        if index != "none":
            trees = [sorted(prefixes_of(rig.cache), key=repr) for rig in rigs]
            assert trees[0] == trees[1], "a token that nobody said has been kept"
    assert (prophet.drafts > 0) == (params.max_tokens is None or params.max_tokens > 2)
    for rig in rigs:
        rig.expect_no_leaks()


def test_an_answer_ends_where_it_ends_in_the_middle_of_a_draft() -> None:
    """Every guess is right, and goes on beyond the end."""
    rig = Rig()
    full = rig.runner.solo(prompt_of(20), greedy(40), 40)
    end = full[20].token
    assert end not in [entry.token for entry in full[:20]]
    Prophet.take_over(rig, wrong=0, longest=30)
    log = rig.ask(prompt_of(20), greedy(40, stop_token_ids=(end,)))
    assert log.samples[0].finish == "stop"
    assert log.samples[0].tokens == tuple(entry.token for entry in full[:21])
    rig.expect_solo(log)
    stats = rig.engine.stats()
    assert stats.generated_tokens == 21
    assert stats.guessed_right_tokens == log.usage.guessed_right <= 20
    assert rig.cache.books().cached_tokens == 20 + 20, "the last token has no KV, and none came after it"
    rig.expect_no_leaks()


def test_tokens_come_one_by_one_in_their_order() -> None:
    """Each in a delta of its own, as without guesses: streams look the same."""
    rig = Rig()
    Prophet.take_over(rig, wrong=0.1)
    rig.engine.add(Request("r", prompt_of(9), greedy(30)), 0.0)
    rig.logs["r"] = Log(Request("r", prompt_of(9), greedy(30)))
    deltas = []
    while rig.engine.busy:
        events = rig.engine.step(0.0)
        deltas += [event for event in events if hasattr(event, "token_ids")]
        rig.take(events)
    assert [len(delta.token_ids) for delta in deltas] == [1] * 30
    rig.expect_solo(rig.logs["r"])


@pytest.mark.parametrize("steps", range(2, 12))
def test_aborted_while_guesses_are_made(steps: int) -> None:
    rig = Rig(pool=256, page_size=4)
    Prophet.take_over(rig)
    neighbour, victim = rig.add(prompt_of(40), greedy(60)), rig.add(prompt_of(40, 1), greedy(60, n=2))
    for _ in range(steps):
        rig.step()
    rig.abort(victim)
    rig.run()
    rig.expect_solo(neighbour)
    rig.expect_solo(rig.ask(prompt_of(40, 1), greedy(60)))
    rig.expect_no_leaks()


def test_one_whose_step_fails_ends_and_commits_nothing_of_it() -> None:
    def hook(plan: StepPlan) -> frozenset[SeqId]:
        failing = plan.step == 6 and any(work.guesses for work in plan.works)
        return frozenset({plan.works[0].seq}) if failing else frozenset()

    rig = Rig(hook=hook)
    Prophet.take_over(rig, wrong=0, longest=4)
    failed, other = rig.add(prompt_of(30), greedy(60)), rig.add(prompt_of(30, 1), greedy(60))
    rig.run()
    assert "told to fail" in str(failed.usage and failed.finished and failed.finished.error)
    rig.expect_solo(other)
    rig.expect_no_leaks()


def test_a_sibling_of_one_that_fails_keeps_what_it_has_said_and_no_more() -> None:
    """Of the failing step nothing is said, so nothing drawn in it is kept, however much of it was right."""
    undelivered: list[int] = []

    def hook(plan: StepPlan) -> frozenset[SeqId]:
        if undelivered or plan.step < 5 or len(plan.works) < 2 or not plan.works[1].guesses:
            return frozenset()
        undelivered.append(len(plan.works[1].guesses))
        return frozenset({plan.works[0].seq})

    rig = Rig(hook=hook)
    prophet = Prophet.take_over(rig, wrong=0, longest=4)
    failed = rig.add(prompt_of(30), SamplingParams(max_tokens=60, seed=3, n=2))
    rig.run()
    assert undelivered
    said = (*prompt_of(30), *failed.samples[1].tokens)
    assert 30 < len(said) < 90
    kept = max((tokens for _, tokens in prefixes_of(rig.cache)), key=len)
    assert kept == said[:-1], "the last has no KV, as when an answer ends"
    namespace = rig.engine._namespace(Scope())
    assert tuple(prophet._replies.of(namespace).tolist()) == said[30 - FRONT :]
    rig.expect_no_leaks()


# ---- grammars --------------------------------------------------------------------------------------------


def test_guided_answers_are_those_without() -> None:
    rigs = [Rig(guides=SumsMaker(), speculate=each) for each in ("off", "auto")]
    for _ in range(3):
        plain, guessed = (rig.ask(prompt_of(20), guided(60)) for rig in rigs)
        assert guessed.samples == plain.samples
        expect_obedient(guessed.samples[0].tokens)
    assert rigs[1].engine.stats().guessed_right_tokens > 60, "of an answer that was given before"


class _Ends:
    def mask(self, generated: NDArray[np.int32]) -> NDArray[np.bool_]:
        if len(generated) == 30:
            raise DeadEndError("nothing may follow")
        return np.ones(VOCAB, np.bool_)


class _EndsMaker:
    def check(self, constraint: Constraint, /) -> None: ...

    def begin(self, _constraint: Constraint, /) -> _Ends:
        return _Ends()


def test_a_dead_end_behind_right_guesses_is_told_when_it_is_reached() -> None:
    rig = Rig(guides=_EndsMaker())
    Prophet.take_over(rig, wrong=0)
    log = rig.ask(prompt_of(20), greedy(60, constraint=EVEN))
    assert log.finished is not None
    assert (log.finished.error, log.finished.dead_end) == ("nothing may follow", True)
    assert len(log.samples[0].tokens) == 30


# ---- who pays --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 4, 16])
def test_drafts_take_what_is_left_of_a_step(chunk: int) -> None:
    widths: list[int] = []

    def hook(plan: StepPlan) -> frozenset[SeqId]:
        widths.append(plan.tokens)
        return frozenset()

    rig = Rig(chunk=chunk, hook=hook)
    prophet = Prophet.take_over(rig)
    for salt in range(3):
        rig.add(prompt_of(20, salt), greedy(30))
    rig.run()
    assert max(widths) <= chunk
    assert (prophet.drafts > 0) == (chunk > 1)
    for log in rig.logs.values():
        rig.expect_solo(log)


def test_nobody_is_preempted_or_kept_waiting_for_a_draft() -> None:
    """The pool holds just what the two will have in the end; every page of a wrong guess is given back at once."""
    rig = Rig(pool=2 * (20 + 59))
    Prophet.take_over(rig, wrong=0.5)
    logs = [rig.add(prompt_of(20, salt), greedy(60)) for salt in range(2)]
    rig.run()
    assert rig.engine.stats().preemptions == 0
    for log in logs:
        rig.expect_solo(log)


def test_between_steps_nobody_holds_pages_for_guesses() -> None:
    rig = Rig(page_size=1)
    Prophet.take_over(rig, wrong=0.5)
    log = rig.add(prompt_of(20), greedy(60))
    rig.step()
    while log.finished is None:
        rig.step()
        for sequence in rig.engine._scheduler._running.values():
            assert sequence.lease is not None
            assert len(sequence) - 1 <= sequence.lease.covered <= len(sequence)


def test_where_somebody_waits_drafts_take_free_pages_alone() -> None:
    """What one who waits will find in the cache is not given up for a guess."""
    rig = Rig(pool=100, max_running=1)
    rig.ask(prompt_of(40), greedy(1))
    Prophet.take_over(rig, wrong=1, longest=30)
    rig.add(prompt_of(20, salt=1), greedy(30))
    waiting = rig.add(prompt_of(40), greedy(2))
    rig.run()
    assert waiting.usage.reused == 39
    assert rig.engine.stats().evicted_tokens == 0


@pytest.mark.parametrize("slope", [0.02, 0.25, 0.5, 1.0])
def test_where_all_guesses_are_wrong_a_stream_is_hardly_slower(slope: float) -> None:
    """The text repeats itself all the time, and goes on differently each time."""
    rig = Rig(**rows_cost(slope))  # type: ignore[arg-type]
    most = 0.0
    for count in (64, 128, 256):
        began = rig.now
        log = rig.ask(prompt_of(600, salt=count), greedy(count))
        rig.expect_solo(log)
        reading = sum(1 + slope * (tokens - 1) for tokens in [64] * 9 + [24])
        most = max(most, (rig.now - began - reading) - (count - 1))
        assert rig.now - began - reading <= (count - 1) + FIRST + ALLOWANCE * count + slope
    assert most > 0, "something was guessed"


def test_an_answer_given_before_takes_less_than_half_of_the_time_and_steps() -> None:
    rig = Rig(**rows_cost(0.25))  # type: ignore[arg-type]
    times, steps = [0.0], [0]
    for _ in range(3):
        log = rig.ask(prompt_of(30), greedy(128))
        rig.expect_solo(log)
        times.append(rig.now)
        steps.append(rig.engine.stats().steps)
    first, second, third = (b - a for a, b in pairwise(times))
    assert max(second, third) < 0.5 * first
    assert steps[2] - steps[1] < 0.2 * (steps[1] - steps[0])
    assert log.usage.guessed_right > 100


def test_where_rows_are_as_dear_as_steps_guessing_costs_nothing_either() -> None:
    rig = Rig(**rows_cost(1.0))  # type: ignore[arg-type]
    times = [0.0]
    for _ in range(3):
        rig.ask(prompt_of(30), greedy(128))
        times.append(rig.now)
    first, second, third = (b - a for a, b in pairwise(times))
    assert max(second, third) <= first


# ---- whose it is -----------------------------------------------------------------------------------------


def test_nothing_is_guessed_from_what_others_said() -> None:
    """A prompt without repetition, so only what was said before can be guessed from."""
    rig = Rig()
    prompt = tuple(range(30))
    rig.ask(prompt, greedy(1))

    def guessed(scope: Scope, *, reuse: bool = True) -> int:
        log = rig.add(prompt, greedy(3), scope=scope, reuse=reuse)
        rig.run()
        return log.usage.guessed

    answered = [guessed(Scope(tenant="a")) for _ in range(2)]
    assert answered == [0, 1]
    assert guessed(Scope(tenant="b")) == 0
    assert guessed(Scope(tenant="a", salt="s")) == 0
    assert guessed(Scope(tenant="a"), reuse=False) == 0
    assert guessed(Scope(tenant="a")) == 1
    rig.engine.flush()
    assert guessed(Scope(tenant="a")) == 0


def test_nothing_is_guessed_from_an_answer_that_had_begun_before_a_flush() -> None:
    """Nor from one that is told half, and ends after it."""
    rig = Rig()
    prompt = tuple(range(30))

    def guessed(*, flushed: bool) -> int:
        log = rig.add(prompt, greedy(6))
        for _ in range(3):
            rig.step()
        assert log.finished is None
        if flushed:
            rig.engine.flush()
        rig.run()
        rig.expect_solo(log)
        return rig.ask(prompt, greedy(3)).usage.guessed

    assert [guessed(flushed=each) for each in (True, False)] == [0, 1]


def test_off_is_off() -> None:
    rig = Rig(speculate="off")
    for _ in range(3):
        log = rig.ask(prompt_of(30), greedy(64))
    assert (log.usage.guessed, rig.engine.stats().guessed_tokens) == (0, 0)
