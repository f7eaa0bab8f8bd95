"""One change at a time, and the plan in a somewhat different world."""

from __future__ import annotations

from sapwood.sim.design import Case, Design
from sapwood.sim.goals import Goals
from sapwood.sim.planner import Planner
from sapwood.sim.space import Space
from sapwood.sim.what_ifs import sensitivity, what_ifs
from sim.planning import FormulaJudge, outcome_of

DESIGN = Design(50_000, replicas=2)
SPACE = Space((25_000, 50_000, 100_000), most_replicas=8)


def test_each_change_is_simulated_and_held_against_the_goals() -> None:
    planner = Planner(Goals(ttft_p95=5.0), SPACE, FormulaJudge(), None)
    rows = {each.change: each for each in what_ifs(planner, DESIGN)}
    assert rows["as planned"].row.case == Case(DESIGN)
    assert rows["as planned"].meets
    assert not rows["one replica less"].meets
    assert rows["one replica more"].row.design.replicas == 3
    assert rows["half the memory"].row.outcome.hit_rate == 0.4
    assert rows["twice the memory"].row.design.capacity_tokens == 100_000
    assert rows["no reuse"].row.outcome.hit_rate == 0
    assert rows["traffic × 2"].row.outcome.ttft_p95 == 2 * rows["as planned"].row.outcome.ttft_p95
    for each in (
        "eviction lru",
        "order fcfs",
        "pages of 16 tokens",
        "pages of 64 tokens",
        "index blocks, pages of 16 tokens, lru",
        "routing round-robin",
    ):
        assert rows[each].row.outcome == outcome_of(rows[each].row.case)


def test_changes_that_change_nothing_are_left_out() -> None:
    planner = Planner(Goals(), SPACE, FormulaJudge(), None)
    rows = what_ifs(planner, Design(50_000, eviction_policy="lru", page_size=16))
    changes = [each.change for each in rows]
    assert not {"eviction lru", "pages of 16 tokens", "one replica less"} & set(changes)
    assert not [change for change in changes if change.startswith("routing")]
    assert len({each.row.case for each in rows}) == len(rows)


def test_the_index_of_whole_pages_is_that_of_vllm() -> None:
    planner = Planner(Goals(), SPACE, FormulaJudge(), None)

    def blocks(design: Design) -> list[Design]:
        return [each.row.design for each in what_ifs(planner, design) if each.change.startswith("index")]

    assert blocks(Design(50_000, eviction_policy="slru")) == [
        Design(50_000, page_size=16, prefix_index="blocks", eviction_policy="lru")
    ]
    assert [each.page_size for each in blocks(Design(50_000, page_size=64))] == [64]
    assert blocks(Design(50_000, prefix_index="none")) == []


def test_a_plan_moves_with_traffic_and_with_the_cost_model() -> None:
    planner = Planner(Goals(ttft_p95=4.0), SPACE, FormulaJudge(), None)
    shifts = {(each.traffic, each.speed): each for each in sensitivity(planner, DESIGN)}
    assert {key: each.replicas for key, each in shifts.items()} == {
        (0.8, 1.0): 2,
        (1.2, 1.0): 3,
        (1.0, 0.8): 3,
        (1.0, 1.2): 2,
    }
    assert {key for key, each in shifts.items() if each.meets} == {(0.8, 1.0), (1.0, 1.2)}
    assert shifts[1.2, 1.0].outcome == outcome_of(Case(DESIGN, traffic=1.2))


def test_without_goals_there_is_nothing_to_seek() -> None:
    for goals in (Goals(), Goals(total_tokens=200_000)):
        planner = Planner(goals, SPACE, FormulaJudge(), None)
        assert {each.replicas for each in sensitivity(planner, DESIGN)} == {None}


def test_pools_smaller_than_a_page_are_left_out() -> None:
    planner = Planner(Goals(), SPACE, FormulaJudge(), None)
    changes = [each.change for each in what_ifs(planner, Design(40))]
    assert "pages of 16 tokens" in changes
    assert "pages of 64 tokens" not in changes
    halved = [each.change for each in what_ifs(planner, Design(24, page_size=16))]
    assert "half the memory" not in halved
    assert "twice the memory" in halved


def test_it_is_told_what_no_replica_has() -> None:
    planner = Planner(Goals(), SPACE, FormulaJudge(), None)
    rows = {each.change: each.held for each in what_ifs(planner, DESIGN, most_tokens=60_000)}
    assert {change for change, held in rows.items() if not held} == {"twice the memory"}
