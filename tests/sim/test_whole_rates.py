"""Hit rates of a whole trace beside times of a part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sapwood.config import CacheConfig, SchedulerConfig
from sapwood.sim import Case, Design, SimulatingJudge, Trace
from sapwood.sim.whole_rates import WholeRates
from sim.test_judge import TokenCost, chat

WHOLE = chat(turns=6, sessions=4)
DESIGN = Design(16_384)


def judging(part: Trace) -> WholeRates:
    simulating = SimulatingJudge(part, TokenCost(), scheduler=SchedulerConfig(speculate="off"), workers=1)
    return WholeRates(simulating, WHOLE, part, CacheConfig(), workers=1)


def first(count: int) -> Trace:
    return WHOLE.where(np.arange(len(WHOLE)) < count)


def test_where_the_part_is_the_whole_it_is_what_was_simulated() -> None:
    judge = judging(WHOLE)
    [outcome] = judge([Case(DESIGN)])
    assert outcome.hit_rate == pytest.approx(judge.judge([Case(DESIGN)])[0].hit_rate)


def test_a_cold_part_has_the_rate_of_the_whole() -> None:
    judge = judging(first(4))
    cases = [Case(DESIGN), Case(replace(DESIGN, eviction_policy="lru"))]
    [whole] = judging(WHOLE)([Case(DESIGN)])
    for outcome, simulated in zip(judge(cases), judge.judge(cases), strict=True):
        assert simulated.hit_rate == 0
        assert outcome.hit_rate == pytest.approx(whole.hit_rate)
        assert outcome == replace(simulated, hit_rate=outcome.hit_rate)


def test_what_routing_loses_is_taken_off() -> None:
    judge = judging(first(12))
    spread = replace(DESIGN, capacity_tokens=8192, replicas=3, routing="round-robin")
    kept = replace(spread, routing="session")
    lost, held = judge([Case(spread), Case(kept)])
    simulated = judge.judge([Case(spread), Case(kept)])
    assert lost.hit_rate < held.hit_rate
    assert held.hit_rate - lost.hit_rate == pytest.approx(simulated[1].hit_rate - simulated[0].hit_rate)


def test_without_reuse_there_is_no_rate_and_without_room_none_at_all() -> None:
    judge = judging(first(8))
    off, small = judge(
        [Case(replace(DESIGN, prefix_index="none")), Case(replace(DESIGN, capacity_tokens=16))]
    )
    assert off.hit_rate == 0
    assert small.refused == small.requests
    assert small.hit_rate == 0
