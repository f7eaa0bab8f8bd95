"""Traces through replicas on virtual clocks: small ones, by hand. `test_against_engine.py` has the proof."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

from sapwood.config import CacheConfig, SchedulerConfig
from sapwood.errors import UsageError
from sapwood.routing import ROUTER_NAMES, Candidate, RouterName, Ticket, router_for
from sapwood.sim import Run, Setup, StepShape, Trace, TraceRequest, simulate

OFF = SchedulerConfig(chunk_tokens=100, speculate="off")


class Simple:
    """A CostModel: a second for a step, and one for every hundred tokens."""

    name = "simple"

    def step_seconds(self, shape: StepShape) -> float:
        return 1.0 + float(shape.counts.sum()) / 100

    def prefill_seconds(self, tokens: int, cached: int) -> float:
        return 1.0 + (tokens - cached) / 100


def ask(at: float, prompt: int, output: int, name: int = 0, session: int = 0) -> TraceRequest:
    """A prompt of its own, or that of a name."""
    tokens = 10_000 * name + np.arange(prompt, dtype=np.int32)
    return TraceRequest(at, prompt, output, tokens, prompt, session)


def run_of(requests: Sequence[TraceRequest], setup: Setup) -> Run:
    return simulate(Trace.of("t", 1, requests), setup, Simple())


def test_one_request_takes_its_steps() -> None:
    """100 tokens: two steps for the prompt of 150 (2 s and 1.5 s), then 1.01 s for each further token."""
    run = run_of([ask(5.0, 150, 3)], Setup(1000, scheduler=OFF))
    assert (run.admitted[0], run.first_token[0]) == (5.0, 8.5)
    assert run.finished[0] == pytest.approx(8.5 + 2 * 1.01)
    assert run.ttft.tolist() == [3.5]
    assert run.tpot.tolist() == pytest.approx([1.01])
    assert run.queueing.tolist() == [0.0]
    assert (run.steps.tolist(), run.computed_tokens.tolist()) == ([4], [152])
    assert run.busy_seconds[0] == pytest.approx(run.finished[0] - 5.0)
    assert run.output_per_second == pytest.approx(3 / run.seconds)


def test_what_came_before_is_reused_and_time_alone_passes_in_between() -> None:
    run = run_of([ask(0.0, 80, 1), ask(1000.0, 80, 1)], Setup(1000, scheduler=OFF))
    assert run.reused.tolist() == [0, 79]
    assert {reason: column.tolist() for reason, column in run.missed.items()} == {
        "never_seen": [79, 0],
        "last_token": [1, 1],
    }
    assert run.ttft.tolist() == pytest.approx([1.8, 1.01])
    assert run.hit_rate == 79 / 160


def test_a_prompt_without_an_answer_ends_when_it_is_read() -> None:
    run = run_of([ask(0.0, 80, 0)], Setup(1000, scheduler=OFF))
    assert run.finished.tolist() == [1.8]
    assert np.isnan(run.first_token[0])
    assert len(run.ttft) == len(run.tpot) == 0


def test_si_04_what_can_never_be_placed_is_refused_and_the_run_ends() -> None:
    """SI-04. A head that never fits, in a pool smaller than it: refused as at the engine's door, others served."""
    requests = [ask(0.0, 101, 5, 1), ask(0.0, 60, 5, 2), ask(0.1, 97, 5, 3), ask(0.2, 96, 5, 4)]
    run = run_of(requests, Setup(100, scheduler=OFF))
    assert run.refused.tolist() == [True, False, True, False]
    assert "the KV pool holds 100 tokens" in run.refusals[0]
    assert np.isfinite(run.finished[~run.refused]).all()
    assert run.order.tolist() == [1, 3]
    assert run.hit_rate == 0
    assert run.figures()[0].value == 2


def test_a_refused_prompt_counts_as_one_that_reuses_nothing() -> None:
    run = run_of([ask(0.0, 80, 1), ask(1000.0, 80, 1), ask(2000.0, 240, 1)], Setup(100, scheduler=OFF))
    assert run.refused.tolist() == [False, False, True]
    assert run.hit_rate == 79 / 400
    assert "refused ones too" in run.figures()[1].definition


def test_si_04_a_trace_of_which_nothing_fits_ends_too() -> None:
    """SI-04."""
    run = run_of([ask(0.0, 500, 5)], Setup(100, scheduler=OFF))
    assert (run.seconds, run.hit_rate, run.output_per_second, run.order.tolist()) == (0, 0, 0, [])
    assert [figure.name for figure in run.figures()][:2] == ["served", "hit rate"]


def test_si_01_the_start_state_is_stated() -> None:
    """SI-01. The caches are empty at the beginning, the result says so, and each run starts so again."""
    setup = Setup(1000, scheduler=OFF)
    for _ in range(2):
        run = run_of([ask(0.0, 80, 1)], setup)
        assert run.start == "cold"
        assert run.reused.tolist() == [0]
    assert "caches cold at the start" in run.figures()[1].definition


def test_si_02_each_number_has_its_definition() -> None:
    """SI-02. Also the page size, which decides whether a partial page counts."""
    run = run_of([ask(0.0, 80, 3), ask(9.0, 80, 3)], Setup(1000, CacheConfig(page_size=16), OFF))
    for figure in run.figures():
        assert figure.definition
    rate = run.figures()[1]
    assert (rate.name, rate.value) == ("hit rate", run.hit_rate)
    assert rate.value == 64 / 160
    assert "whole pages of 16" in rate.definition


class Always:
    """A router that sends all to the last replica and notes what it is told."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, list[Candidate]]] = []
        self.ended: list[tuple[int, int, float]] = []
        self.refused: list[tuple[int, float]] = []

    def choose(self, ticket: Ticket, candidates: Sequence[Candidate], now: float) -> int:
        assert ticket.session == "7"
        self.seen.append((now, list(candidates)))
        return candidates[-1].replica

    def finished(self, ticket: Ticket, replica: int, stored: object, now: float, *_: object) -> None:
        del ticket
        assert isinstance(stored, np.ndarray)
        self.ended.append((replica, len(stored), now))

    def failed(self, ticket: Ticket, replica: int, now: float) -> None:
        del ticket
        self.refused.append((replica, now))

    def left(self, replica: int) -> None:
        raise AssertionError(f"{replica} left")

    def expire(self, before: float) -> None:
        raise AssertionError(f"expired before {before}")


def test_a_router_is_told_how_busy_each_replica_is_and_what_becomes_of_its_choice() -> None:
    router = Always()
    requests = [
        ask(0.0, 150, 1, 1, 7),
        ask(1.0, 50, 1, 2, 7),
        ask(1.5, 50, 1, 3, 7),
        ask(50.0, 1001, 1, 4, 7),
    ]
    run = run_of(requests, Setup(1000, scheduler=OFF, replicas=2, router=lambda: router))
    assert run.replica.tolist() == [1, 1, 1, 1]
    assert all(candidates[0] == Candidate(0, 0, 0, 0.0) for _, candidates in router.seen)
    told = [candidates[1] for _, candidates in router.seen]
    assert [(each.running, each.waiting) for each in told] == [(0, 0), (1, 0), (1, 1), (0, 0)]
    # A step of 2 s runs; unread are the prompt that it reads, and what has come since.
    assert [each.wait_seconds for each in told] == pytest.approx([0.0, 1.0 + 2.5, 0.5 + 2.5 + 1.5, 0.0])
    # The one token of each answer was drawn and never read.
    assert sorted((replica, length) for replica, length, _ in router.ended) == [(1, 50), (1, 50), (1, 150)]
    assert [now for _, _, now in router.ended] == sorted(run.finished[:3].tolist())
    assert router.refused == [(1, 50.0)]


def test_replicas_without_a_router_take_turns_each_with_its_own_clock() -> None:
    run = run_of(
        [ask(0.0, 80, 1, 1), ask(0.0, 40, 1, 2), ask(0.5, 80, 1, 1)], Setup(1000, scheduler=OFF, replicas=2)
    )
    assert run.replica.tolist() == [0, 1, 0]
    assert run.finished.tolist() == pytest.approx([1.8, 1.4, 1.8 + 1.01])
    assert run.reused.tolist() == [0, 0, 79]


def test_the_same_trace_gives_the_same_run_and_a_run_can_be_sent_to_another_process() -> None:
    requests = [ask(index * 0.7, 30 + index, 4, index % 3) for index in range(30)]
    setup = Setup(120, scheduler=SchedulerConfig(chunk_tokens=32, max_running=3))
    one, other = run_of(requests, setup), pickle.loads(pickle.dumps(run_of(requests, setup)))
    assert one.evicted_tokens == other.evicted_tokens > 0
    for name in ("admitted", "first_token", "finished", "reused", "order"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_progress_is_told_now_and_then() -> None:
    said: list[str] = []
    trace = Trace.of("t", 1, [ask(index * 5.0, 2, 1) for index in range(2500)])
    simulate(trace, Setup(100, scheduler=OFF), Simple(), said.append)
    assert said == [
        "1,000 of 2,500 requests, 4,995 s into the trace",
        "2,000 of 2,500 requests, 9,995 s into the trace",
    ]


def test_what_cannot_be_simulated_is_told() -> None:
    with pytest.raises(UsageError, match="there are 0 replicas"):
        Setup(100, replicas=0)
    with pytest.raises(UsageError, match="must hold a page of 16"):
        Setup(15, CacheConfig(page_size=16))


@pytest.mark.parametrize("routing", [None, *ROUTER_NAMES])
@pytest.mark.parametrize("page", [1, 16])
def test_si_01_caches_can_be_warm_and_a_run_says_by_what(routing: RouterName | None, page: int) -> None:
    """SI-01. Where nobody waits, to warm with the first requests is to have served them."""
    requests = [ask(100.0 * at, 40 + 8 * at, 5, at % 4, at % 4) for at in range(24)]
    trace = Trace.of("t", 1, [*requests, ask(2400.0, 2000, 1, 5, 5), ask(2500.0, 232, 1, 3, 3)])
    making = (
        None
        if routing is None
        else partial(router_for, routing, capacity_tokens=600, prefill_seconds=prefill)
    )
    setup = Setup(600, CacheConfig(page_size=page), OFF, replicas=2, router=making)
    whole = simulate(trace, setup, Simple())
    for begin in (1, 10, 25):
        late = simulate(trace, setup, Simple(), begin=begin)
        assert late.start == f"warmed by the {begin} requests before"
        for name in ("reused", "replica", "admitted", "first_token", "finished", "refused"):
            np.testing.assert_array_equal(getattr(late, name), getattr(whole, name)[begin:])
        assert list(late.refusals) == [24 - begin] * (begin < 25)
        assert late.order.tolist() == [at - begin for at in whole.order.tolist() if at >= begin]
        assert "caches warmed by" in late.figures()[1].definition
    assert whole.reused[10:].any()


def prefill(tokens: int, cached: int) -> float:
    return Simple().prefill_seconds(tokens, cached)
