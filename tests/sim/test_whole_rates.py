"""Hit rates and load of a whole trace beside times of a part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sapwood.config import SchedulerConfig
from sapwood.sim import (
    Case,
    Design,
    EngineSpec,
    Goals,
    Outcome,
    Planner,
    SimulatingJudge,
    Space,
    Trace,
    TraceRequest,
    Window,
    what_ifs,
)
from sapwood.sim.whole_rates import WholeRates
from sim.test_judge import TokenCost, chat

ENGINE = EngineSpec(TokenCost(), scheduler=SchedulerConfig(speculate="off"))
WHOLE = chat(turns=6, sessions=4)
DESIGN = Design(16_384)


def judging(window: Window, trace: Trace = WHOLE) -> WholeRates:
    simulating = SimulatingJudge(trace, ENGINE, workers=1, window=window)
    return WholeRates(simulating, trace, ENGINE, workers=1)


def load_of(outcome: Outcome) -> float:
    assert outcome.load is not None
    return outcome.load


def two_turns(sessions: int) -> Trace:
    """Each session asks 160 tokens of its own, and then the same and 160 more: half of the second prompt is history."""
    rows = []
    for session in range(sessions):
        names = np.arange(20, dtype=np.int32) + 20 * session
        rows.append(TraceRequest(1.0 * session, 160, 1, names[:10], 160, session))
        rows.append(TraceRequest(1.0 * (sessions + session), 320, 1, names, 320, session))
    return Trace.of("two turns", 16, rows)


@pytest.mark.parametrize("page", [1, 16, 64])
@pytest.mark.parametrize("routing", ["prefix", "session", "least-loaded", "round-robin", "random"])
def test_a_part_has_the_rate_that_all_of_it_has_when_simulated(routing: str, page: int) -> None:
    """Where nobody waits, requests that come and go at once find what those on the clock do."""
    design = Design(16_384, replicas=3, page_size=page, routing=routing)  # type: ignore[arg-type]
    [part] = judging(Window(5, 2))([Case(design)])
    [whole] = SimulatingJudge(WHOLE, ENGINE, workers=1)([Case(design)])
    assert part.hit_rate == pytest.approx(whole.hit_rate, abs=1e-12)
    assert 0 < part.hit_rate < 1


def test_hashed_pages_have_the_rate_that_all_of_it_has_when_simulated() -> None:
    design = Design(1024, 2, 16, "blocks", "lru", routing="session")
    [part], [tree] = (
        judging(Window(5, 2))([Case(each)]) for each in (design, replace(design, prefix_index="radix"))
    )
    [whole] = SimulatingJudge(WHOLE, ENGINE, workers=1)([Case(design)])
    assert part.hit_rate == pytest.approx(whole.hit_rate, abs=1e-12)
    assert 0 < part.hit_rate <= tree.hit_rate


def test_random_routing_loses_most_histories_in_the_what_ifs_of_a_plan() -> None:
    """(R - 1) of R of them, though hardly any turn of the part that is simulated is a second one."""
    judge = judging(Window(0, 4), two_turns(121))
    planner = Planner(Goals(), Space((200_000,)), judge, None)
    rows = {each.change: each.row.outcome.hit_rate for each in what_ifs(planner, Design(200_000, 4))}
    assert rows["as planned"] == pytest.approx(1 / 3, abs=0.01)
    assert rows["routing session"] == pytest.approx(1 / 3, abs=0.001)
    for routing in ("random", "round-robin", "least-loaded"):
        assert rows[f"routing {routing}"] < 0.5 * rows["routing session"]
    assert rows["routing random"] / rows["routing session"] == pytest.approx(1 / 4, abs=0.1)


def test_what_is_longer_than_each_pool_is_no_hit_though_all_together_would_hold_it() -> None:
    """Of prompts of 4, 6, … 14 blocks those of up to 8, and a block of reply, fit into 9."""
    alone = chat(turns=6, sessions=1)
    [small] = judging(Window(0, 2), alone)([Case(Design(16 * 9, replicas=4, routing="session"))])
    asked = 16 * sum(2 * turn + 4 for turn in range(6))
    assert small.hit_rate == pytest.approx((16 * 4 + 16 * 6) / asked)
    [none] = judging(Window(0, 2))([Case(Design(16, replicas=4))])
    assert none.hit_rate == 0
    assert none.refused == none.requests


def test_without_reuse_there_is_no_rate_and_all_of_the_work() -> None:
    on, off = judging(Window(0, 8))([Case(DESIGN), Case(replace(DESIGN, prefix_index="none"))])
    assert off.hit_rate == 0
    assert load_of(on) < load_of(off)


def test_load_is_the_work_of_the_whole_over_its_time_and_the_replicas() -> None:
    """24 requests in 53 s, a millisecond a token: those of prompts that are not there, and 3 of each reply."""
    plain, four, fast = judging(Window(0, 4))(
        [Case(DESIGN), Case(replace(DESIGN, replicas=4, routing="session")), Case(DESIGN, speed=2.0)]
    )
    fresh = int(WHOLE.prompt_tokens.sum()) * (1 - plain.hit_rate)
    assert load_of(plain) == pytest.approx((fresh + 24 * 3) / 1000 / 53)
    assert load_of(four) == pytest.approx(load_of(plain) / 4)
    assert load_of(fast) == pytest.approx(load_of(plain) / 2)


class Slow(TokenCost):
    """A quarter of a second for each token."""

    def step_seconds(self, shape: object) -> float:
        return 250 * super().step_seconds(shape)  # type: ignore[arg-type]


def test_replicas_that_fall_behind_miss_a_goal_that_the_first_requests_meet() -> None:
    engine = replace(ENGINE, cost=Slow())
    slow = WholeRates(
        SimulatingJudge(WHOLE, engine, workers=1, window=Window(0, 1)), WHOLE, engine, workers=1
    )
    goals = Goals(ttft_p95=60.0)
    [one, many] = slow([Case(DESIGN), Case(replace(DESIGN, replicas=32))])
    assert one.ttft_p95 < 60
    assert load_of(one) > 1
    assert [short.goal for short in goals.of_service(one)] == ["load"]
    assert load_of(many) < 1
    assert not goals.of_service(many)
    for others in (Goals(hit_rate=0.1), Goals(total_tokens=10**9)):
        assert [short.goal for short in others.of_service(one)] == ["load"]


def test_where_all_is_simulated_its_hit_rate_stays_and_the_load_is_told() -> None:
    simulated = SimulatingJudge(WHOLE, ENGINE, workers=1)
    told = WholeRates(simulated, WHOLE, ENGINE, workers=1, hits=False)
    [alone], [outcome] = simulated([Case(DESIGN)]), told([Case(DESIGN)])
    assert alone.load is None
    assert replace(outcome, load=None) == alone
    assert 0 < load_of(outcome) < 1


def test_of_a_moment_there_is_no_load() -> None:
    moment = WHOLE.where(np.arange(len(WHOLE)) < 1)
    [outcome] = judging(Window(0, 1), moment)([Case(DESIGN)])
    assert outcome.load is None


def test_more_users_need_more_memory() -> None:
    """All that four sessions leave fits into 84 blocks; with three times the users it does not."""
    design = Design(16 * 84)
    one, three = judging(Window(0, 4))([Case(design), Case(design, traffic=3.0)])
    ample = judging(Window(0, 4))([Case(DESIGN), Case(DESIGN, traffic=3.0)])
    assert one.hit_rate == ample[0].hit_rate == pytest.approx(ample[1].hit_rate)
    assert three.hit_rate < one.hit_rate - 0.05
    assert load_of(ample[1]) == pytest.approx(3 * load_of(ample[0]), rel=0.01)


def test_processes_beside_each_other_find_the_same() -> None:
    cases = [Case(DESIGN), Case(replace(DESIGN, replicas=2)), Case(DESIGN, traffic=1.5)]
    judge = judging(Window(0, 4))
    assert replace(judge, workers=2)(cases) == judge(cases)
