"""The same traffic, served and simulated: hits, order, times and evictions are equal, to the token."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.rig import VOCAB, prompt_of
from sapwood.config import CacheConfig, IndexName, OrderName, SchedulerConfig, SpeculateName
from sapwood.sim import Setup, simulate
from sim.engine_run import Ask, ByTokens, Served, Watched, serve


@dataclass(frozen=True)
class Plan:
    pool: int
    page_size: int
    chunk: int
    max_running: int
    policy: OrderName
    index: IndexName
    speculate: SpeculateName

    def rig(self) -> Watched:
        return Watched(
            self.pool,
            page_size=self.page_size,
            chunk=self.chunk,
            max_running=self.max_running,
            policy=self.policy,
            index=self.index,
            speculate=self.speculate,
            context=256,
            seconds=ByTokens().of,
        )

    def setup(self) -> Setup:
        return Setup(
            self.pool,
            CacheConfig(page_size=self.page_size, prefix_index=self.index),
            SchedulerConfig(
                chunk_tokens=self.chunk,
                max_running=self.max_running,
                schedule_policy=self.policy,
                speculate=self.speculate,
            ),
            context=256,
        )


plans = st.builds(
    Plan,
    pool=st.sampled_from([48, 96, 160, 2048]),
    page_size=st.sampled_from([1, 4, 16]),
    chunk=st.sampled_from([3, 16, 64]),
    max_running=st.integers(1, 6),
    policy=st.sampled_from(("default", "fcfs", "lpm", "dfs-weight", "priority", "random")),
    index=st.sampled_from(("radix", "radix", "blocks", "none")),
    speculate=st.sampled_from(("off", "off", "auto")),
)


@st.composite
def traffic(draw: st.DrawFn) -> list[Ask]:
    """Prompts that begin alike, in bursts and alone, some too long for a small pool."""
    asks, now = [], 0.0
    for _ in range(draw(st.integers(1, 14))):
        now += draw(st.sampled_from([0.0, 0.0, 0.3, 2.5, 30.0]))
        trunk = prompt_of(draw(st.sampled_from([0, 9, 33, 70])), draw(st.integers(0, 2)))
        tail = tuple(draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=12)))
        asks.append(Ask(now, trunk + tail, draw(st.integers(0, 25)), draw(st.sampled_from(["", "", "acme"]))))
    return asks


@settings(max_examples=60)
@given(plans, traffic())
def test_a_simulation_is_what_the_engine_does(plan: Plan, asks: list[Ask]) -> None:
    rig = plan.rig()
    expect_equal(rig, serve(rig, asks), asks, plan.setup())


def times(column: NDArray[np.float64]) -> dict[int, float]:
    return {index: float(time) for index, time in enumerate(column) if not np.isnan(time)}


def expect_equal(rig: Watched, served: Served, asks: list[Ask], setup: Setup) -> None:
    run = simulate(served.trace(asks), setup, ByTokens())
    assert run.order.tolist() == served.order
    assert run.steps.tolist() == [served.steps]
    assert times(run.admitted) == served.admitted
    assert times(run.first_token) == served.first_token
    assert times(run.finished) == served.ended
    for index, log in enumerate(served.logs):
        assert bool(run.refused[index]) == (log is None)
        if log is None:
            continue
        assert run.reused[index] == log.usage.reused
        missed = {reason: int(column[index]) for reason, column in run.missed.items() if column[index]}
        assert missed == log.usage.missed
    stats = rig.engine.stats()
    assert (run.preemptions, run.evicted_tokens) == (stats.preemptions, stats.evicted_tokens)
    assert int(run.computed_tokens.sum()) == rig.runner.computed_tokens


def test_the_traffic_tests_what_it_should() -> None:
    """Waiting, preemption, eviction, a refusal and right guesses occur, or equality would say little."""
    plan = Plan(96, 4, 16, 4, "default", "radix", "auto")
    asks = [Ask(i // 3 * 0.5, prompt_of(40 + i % 3, i % 4), 24) for i in range(24)]
    asks.append(Ask(3.0, prompt_of(200), 3))
    rig = plan.rig()
    served = serve(rig, sorted(asks, key=lambda ask: ask.arrival))
    stats = rig.engine.stats()
    assert min(stats.preemptions, stats.evicted_tokens, stats.guessed_right_tokens) > 0
    assert None in served.logs
    expect_equal(rig, served, sorted(asks, key=lambda ask: ask.arrival), plan.setup())
