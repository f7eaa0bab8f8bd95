"""Outcomes of designs by simulation: what is asked for is what is simulated."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from sapwood.config import SchedulerConfig
from sapwood.sim import (
    Case,
    Demand,
    Design,
    EngineSpec,
    SimulatingJudge,
    Trace,
    TraceRequest,
    Window,
    simulate,
)
from sapwood.sim.cost import StepShape
from sapwood.sim.judge import outcome_of


class TokenCost:
    """A millisecond for each token computed."""

    name = "1 ms per token"

    def step_seconds(self, shape: StepShape) -> float:
        return 0.001 * float(shape.counts.sum())

    def prefill_seconds(self, tokens: int, cached: int) -> float:
        return 0.001 * (tokens - cached)


def chat(turns: int = 4, sessions: int = 3) -> Trace:
    """Each session goes on from its own blocks of 16 tokens."""
    rows = []
    for session in range(sessions):
        for turn in range(turns):
            names = np.arange(2 * turn + 4, dtype=np.int32) + 100 * session
            prompt = 16 * len(names)
            rows.append(TraceRequest(10.0 * turn + session, prompt, 4, names, prompt, session))
    return Trace.of("chat", 16, rows)


ENGINE = EngineSpec(TokenCost(), scheduler=SchedulerConfig(speculate="off"))
JUDGE = SimulatingJudge(chat(), ENGINE, workers=1)
DESIGN = Design(4096)


def test_reuse_is_seen_and_can_be_off() -> None:
    on, off = JUDGE([Case(DESIGN), Case(replace(DESIGN, prefix_index="none"))])
    assert off.hit_rate == 0
    assert on.hit_rate > 0.5
    assert on.ttft_p95 < off.ttft_p95
    assert (on.requests, on.refused, on.busiest) == (12, 0, 1.0)


def test_the_index_of_hashed_pages_finds_what_the_tree_finds_in_pages() -> None:
    """Where nothing is evicted; pages of 16 tokens are the blocks of the chat, of 64 four of them."""
    for size in (16, 64):
        tree = replace(DESIGN, page_size=size)
        hashed = replace(tree, prefix_index="blocks", eviction_policy="lru")
        by_tree, by_hash = JUDGE([Case(tree), Case(hashed)])
        assert by_hash == by_tree
        assert 0 < by_hash.hit_rate <= JUDGE([Case(DESIGN)])[0].hit_rate


def test_what_is_longer_than_the_context_is_refused() -> None:
    [outcome] = replace(JUDGE, engine=replace(ENGINE, context=100))([Case(DESIGN)])
    assert outcome.refused == Demand.of(chat(), 100).refused(DESIGN.pool_tokens) > 0
    assert JUDGE([Case(DESIGN)])[0].refused == 0


def test_twice_the_speed_is_half_the_time_and_twice_the_traffic_twice_the_users_in_the_same_time() -> None:
    plain, fast, dense = JUDGE([Case(DESIGN), Case(DESIGN, speed=2.0), Case(DESIGN, traffic=2.0)])
    assert fast.ttft_p50 == pytest.approx(plain.ttft_p50 / 2)
    assert dense.requests == 2 * plain.requests
    assert dense.seconds == pytest.approx(plain.seconds, rel=0.05)
    assert dense.hit_rate == pytest.approx(plain.hit_rate)


def test_a_window_is_simulated_from_caches_that_those_before_it_warmed() -> None:
    """All of a chat, then its last six turns: these find what they do in the whole, and take as long."""
    window = replace(JUDGE, window=Window(6, 6))
    design = replace(DESIGN, replicas=2, routing="session")
    [late] = window([Case(design)])
    run = simulate(chat(), ENGINE.setup(Case(design)), TokenCost())
    asked = run.prompt_tokens[6:].sum()
    assert (late.requests, late.hit_rate) == (6, run.reused[6:].sum() / asked)
    assert late.ttft_p95 == pytest.approx(float(np.percentile(run.ttft[6:], 95)))
    [cold] = window([Case(replace(design, prefix_index="none"))])
    assert cold.hit_rate == 0
    assert late.ttft_p50 < cold.ttft_p50
    [twice] = window([Case(design, traffic=2.0)])
    assert twice.requests == 12
    [little] = window([Case(replace(design, capacity_tokens=160))])
    assert little.hit_rate < late.hit_rate


def test_a_pool_that_holds_no_request_refuses_all() -> None:
    [outcome] = JUDGE([Case(replace(DESIGN, capacity_tokens=32))])
    assert outcome.refused == 12
    assert outcome.ttft_p95 == math.inf
    assert math.isnan(outcome.tpot_p50)


def test_some_refused_make_the_tail_infinite_alone() -> None:
    [outcome] = JUDGE([Case(replace(DESIGN, capacity_tokens=100))])
    assert 0 < outcome.refused < 12
    assert outcome.ttft_p95 == math.inf
    assert outcome.ttfts[0] < 1


@pytest.mark.parametrize("routing", ["prefix", "session", "least-loaded", "round-robin", "random"])
def test_replicas_are_routed_by_name(routing: str) -> None:
    [outcome] = JUDGE([Case(replace(DESIGN, replicas=3, routing=routing))])  # type: ignore[arg-type]
    assert outcome.requests == 12
    assert outcome.busiest >= 1
    if routing in ("prefix", "session"):
        assert outcome.hit_rate > 0.5


def test_processes_beside_each_other_find_the_same() -> None:
    cases = [Case(DESIGN), Case(replace(DESIGN, replicas=2))]
    assert replace(JUDGE, workers=2)(cases) == JUDGE(cases)


def test_percentiles_are_those_of_the_run() -> None:
    [outcome] = JUDGE([Case(DESIGN)])
    setup = ENGINE.setup(Case(DESIGN))
    run = simulate(chat(), setup, TokenCost())
    assert outcome == outcome_of(run)
    assert outcome.ttft_p50 == pytest.approx(float(np.percentile(run.ttft, 50)))
    assert outcome.hit_rate == run.hit_rate


def test_progress_tells_of_each() -> None:
    told: list[str] = []
    replace(JUDGE, progress=told.append)([Case(DESIGN), Case(replace(DESIGN, page_size=16))])
    assert told == ["simulating: 1 of 2", "simulating: 2 of 2"]
