"""Coasting is a way of taking steps, not another schedule: all that comes out is the same, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.config import CacheConfig, IndexName, OrderName, SchedulerConfig
from sapwood.plan import StepPlan
from sapwood.sim import Run, Setup, StepShape, Trace, TraceRequest
from sapwood.sim.simulate import Simulation
from sapwood.sim.visit import Asked


class Uneven:
    """A CostModel in which everything about a step matters."""

    name = "uneven"

    def step_seconds(self, shape: StepShape) -> float:
        read = float((shape.starts * shape.counts).sum())
        return 0.01 + 1e-4 * float(shape.counts.sum()) + 1e-7 * read + 1e-4 * shape.draws

    def prefill_seconds(self, tokens: int, cached: int) -> float:
        return 1e-4 * (tokens - cached)


def crowd(seed: int, count: int, per_second: float, unit: int = 16, scopes: int = 1) -> Trace:
    """Some prompts begin alike; answers are long enough for steps in which nothing happens."""
    dice = np.random.default_rng(seed)
    rows, now, fresh = [], 0.0, 10_000
    for index in range(count):
        now += float(dice.exponential(1 / per_second))
        shared = np.arange(10) + 100 * dice.integers(5)
        own = np.arange(fresh, fresh := fresh + int(dice.integers(1, 12)))
        names = np.concatenate([shared, own]).astype(np.int32)
        rows.append(
            TraceRequest(
                now,
                len(names) * unit,
                int(dice.integers(0, 120)),
                names,
                len(names) * unit,
                index,
                index % scopes,
            )
        )
    return Trace.of("crowd", unit, rows, [f"scope {n}" for n in range(scopes)])


def expect_same(trace: Trace, setup: Setup, asked: Sequence[Asked] | None = None) -> Run:
    fast = Simulation(trace, setup, Uneven(), asked=asked).run()
    slow = Simulation(trace, setup, Uneven(), coasting=False, asked=asked).run()
    for name in ("admitted", "first_token", "finished", "busy_seconds"):
        np.testing.assert_array_equal(getattr(fast, name), getattr(slow, name))
    for name in ("reused", "order", "steps", "computed_tokens", "refused", "replica"):
        assert np.array_equal(getattr(fast, name), getattr(slow, name)), name
    assert fast.missed.keys() == slow.missed.keys()
    assert all(np.array_equal(fast.missed[reason], slow.missed[reason]) for reason in fast.missed)
    assert (fast.preemptions, fast.evicted_tokens) == (slow.preemptions, slow.evicted_tokens)
    return fast


@pytest.mark.parametrize("index", ["radix", "blocks", "none"])
@pytest.mark.parametrize("policy", ["default", "fcfs", "lpm", "dfs-weight", "priority", "random"])
@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("pool", [1200, 50_000])
def test_coasting_changes_nothing(index: IndexName, policy: OrderName, page_size: int, pool: int) -> None:
    setup = Setup(
        pool,
        CacheConfig(page_size=page_size, prefix_index=index),
        SchedulerConfig(chunk_tokens=64, max_running=8, schedule_policy=policy, speculate="off"),
    )
    run = expect_same(crowd(1, 30, 6.0), setup)
    assert (run.preemptions > 0) == (pool == 1200)


@pytest.mark.parametrize("policy", ["default", "fcfs", "lpm"])
def test_coasting_changes_nothing_with_a_queue_that_is_looked_up_in_turn(policy: OrderName) -> None:
    scheduler = SchedulerConfig(chunk_tokens=256, max_running=16, schedule_policy=policy, speculate="off")
    run = expect_same(crowd(2, 150, 60.0), Setup(1600, CacheConfig(page_size=16), scheduler))
    assert run.preemptions > 0


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**16),
    policy=st.sampled_from(("default", "fcfs", "lpm", "dfs-weight", "priority", "priority")),
    pool=st.sampled_from((1200, 2400, 50_000)),
    page_size=st.sampled_from((1, 16)),
    max_running=st.integers(1, 8),
    per_second=st.sampled_from((2.0, 6.0, 60.0)),
    priorities=st.lists(st.integers(-1, 2), min_size=1, max_size=7),
    reuse=st.lists(st.booleans(), min_size=1, max_size=3),
)
def test_coasting_changes_nothing_of_priorities_and_scopes(
    seed: int,
    policy: OrderName,
    pool: int,
    page_size: int,
    max_running: int,
    per_second: float,
    priorities: list[int],
    reuse: list[bool],
) -> None:
    trace = crowd(seed, 14, per_second, scopes=2)
    asked = [
        Asked(
            tokens,
            priorities[index % len(priorities)] if policy == "priority" else 0,
            reuse[index % len(reuse)],
        )
        for index, tokens in enumerate(trace.output_tokens.tolist())
    ]
    scheduler = SchedulerConfig(
        chunk_tokens=64, max_running=max_running, schedule_policy=policy, speculate="off"
    )
    expect_same(trace, Setup(pool, CacheConfig(page_size=page_size), scheduler), asked)


def test_a_scheduler_that_does_nothing_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(crowd(1, 1, 1.0), Setup(50_000), Uneven())
    monkeypatch.setattr(simulation.replicas[0].scheduler, "schedule", lambda: None)
    with pytest.raises(AssertionError, match="does nothing for 1 requests"):
        simulation.run()


def test_coasting_saves_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the tests above would test nothing."""
    orders = {True: 0, False: 0}
    trace, setup = crowd(1, 30, 6.0), Setup(50_000, scheduler=SchedulerConfig(speculate="off"))
    for coasting in orders:
        simulation = Simulation(trace, setup, Uneven(), coasting=coasting)
        schedule = simulation.replicas[0].scheduler.schedule

        def counted(
            coasting: bool = coasting, schedule: Callable[[], StepPlan | None] = schedule
        ) -> StepPlan | None:
            orders[coasting] += 1
            return schedule()

        monkeypatch.setattr(simulation.replicas[0].scheduler, "schedule", counted)
        simulation.run()
    assert orders[True] < 0.6 * orders[False]
