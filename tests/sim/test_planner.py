"""Goals to plans, in a world where the right answer is known."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from sapwood.errors import UsageError
from sapwood.sim.design import Case, Design, Outcome
from sapwood.sim.goals import Goals
from sapwood.sim.planner import Planner
from sapwood.sim.space import Space, capacities_up_to
from sim.planning import FormulaJudge, outcome_of, refusing

SIZES = (12_500, 25_000, 50_000, 100_000)
SPACE = Space(SIZES, most_replicas=32)


def planner(goals: Goals, space: Space = SPACE, price: float | None = 2.0) -> Planner:
    return Planner(goals, space, FormulaJudge(), price)


def all_that_reach(goals: Goals, space: Space, price: float | None) -> list[Design]:
    """By asking about every design there is."""
    found = [
        Design(size, count, page, "radix", policy, order, routing)
        for size in space.capacities
        for count in range(space.least_replicas, space.most_replicas + 1)
        for page in space.page_sizes
        for policy in space.policies
        for order in space.orders
        for routing in space.routings
    ]
    return [each for each in found if not goals.shortfalls(each, outcome_of(Case(each)), price)]


@pytest.mark.parametrize(
    "goals",
    [
        Goals(ttft_p95=2.0),
        Goals(ttft_p95=8.0),
        Goals(ttft_p95=40.0),
        Goals(hit_rate=0.3),
        Goals(hit_rate=0.79),
        Goals(ttft_p95=2.0, hit_rate=0.8),
        Goals(ttft_p95=2.0, price_per_hour=8.0),
        Goals(ttft_p95=2.0, total_tokens=100_000),
    ],
)
def test_the_plan_is_the_cheapest_design_of_all(goals: Goals) -> None:
    plan = planner(goals).plan()
    everything = all_that_reach(goals, SPACE, 2.0)
    replicas, size = min((each.replicas, each.capacity_tokens) for each in everything)
    assert plan.met
    assert (plan.answer.design.replicas, plan.answer.design.capacity_tokens) == (replicas, size)
    assert plan.answer.outcome == outcome_of(plan.answer.case)
    assert plan.price_per_hour == 2.0 * replicas


def test_it_asks_about_few_designs_and_none_twice() -> None:
    judge = FormulaJudge()
    Planner(Goals(ttft_p95=1.0, hit_rate=0.5), SPACE, judge, None).plan()
    assert len(judge.asked) == len(set(judge.asked)) < 25


def test_other_choices_are_taken_where_they_are_clearly_better() -> None:
    fond = replace(
        SPACE, policies=("lru", "default"), orders=("fcfs", "default"), routings=("round-robin", "prefix")
    )
    answer = planner(Goals(ttft_p95=4.0), fond).plan().answer.design
    assert (answer.eviction_policy, answer.schedule_policy, answer.routing) == (
        "default",
        "default",
        "prefix",
    )


def test_what_is_held_stays() -> None:
    held = replace(
        SPACE, policies=("lru",), orders=("fcfs",), page_sizes=(16,), least_replicas=5, most_replicas=5
    )
    answer = planner(Goals(ttft_p95=40.0), held).plan().answer.design
    assert (answer.eviction_policy, answer.schedule_policy, answer.page_size) == ("lru", "fcfs", 16)
    assert answer.replicas == 5


@pytest.mark.parametrize(
    ("goals", "missed"),
    [
        (Goals(ttft_p95=0.01), ["TTFT p95"]),
        (Goals(ttft_p95=30.0, hit_rate=0.9), ["hit rate"]),
        (Goals(ttft_p95=1.0, price_per_hour=4.0), ["TTFT p95"]),
        (Goals(ttft_p95=40.0, price_per_hour=1.0), ["price per hour"]),
        (Goals(hit_rate=0.5, total_tokens=25_000), ["hit rate"]),
        (Goals(hit_rate=0.1, total_tokens=1_000), ["memory"]),
    ],
)
def test_where_nothing_reaches_the_goals_it_says_which_fail_and_what_comes_nearest(
    goals: Goals, missed: list[str]
) -> None:
    plan = planner(goals).plan()
    assert not plan.met
    assert [short.goal for short in plan.shortfalls] == missed
    assert all(short.ratio > 1 for short in plan.shortfalls)
    tried = [goals.shortfalls(row.design, row.outcome, 2.0) for row in plan.tried]
    nearest = min(max(short.ratio for short in each) for each in tried)
    assert max(short.ratio for short in plan.shortfalls) == nearest


def test_pools_that_hold_nothing_are_no_plan() -> None:
    plan = Planner(Goals(ttft_p95=5.0), SPACE, lambda cases: [refusing(each) for each in cases], None).plan()
    assert [short.goal for short in plan.shortfalls] == ["TTFT p95"]
    assert plan.answer.outcome.refused == 100


def test_a_rate_that_is_no_number_reaches_no_rate() -> None:
    outcome = Outcome(1, 1, math.nan, math.inf, math.inf, math.inf, math.inf)
    assert [short.goal for short in Goals(hit_rate=0.1).of_service(outcome)] == ["hit rate"]


@pytest.mark.parametrize(
    "wrong", [{"ttft_p95": 0.0}, {"hit_rate": 1.0}, {"hit_rate": 80.0}, {"price_per_hour": 0.0}]
)
def test_goals_that_nothing_could_meet_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="must be"):
        Goals(**wrong)  # type: ignore[arg-type]


def test_sizes_halve_down_from_the_largest_in_whole_units() -> None:
    assert capacities_up_to(100_000, 512, count=4) == (12_288, 25_088, 50_176, 99_840)
    assert capacities_up_to(3, 1, count=9) == (1, 2, 3)
    assert capacities_up_to(100, 512) == (512,)


@pytest.mark.parametrize("wrong", [{"capacities": ()}, {"capacities": (2, 1)}, {"most_replicas": 0}])
def test_an_empty_space_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="expected"):
        Space(**{"capacities": SIZES, **wrong})  # type: ignore[arg-type]
