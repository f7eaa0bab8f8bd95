"""Reports of plans in the formula's world."""

from __future__ import annotations

from sapwood.cli.plan_report import Ceiling, Curves, Knee, Line, Machine, Point, Report, Timed, Traffic
from sapwood.sim.design import Case, Design
from sapwood.sim.goals import Goals
from sapwood.sim.planner import Planner
from sapwood.sim.space import Space
from sapwood.sim.what_ifs import sensitivity, what_ifs
from sim.planning import NEED, FormulaJudge, hit_rate_of, outcome_of

MACHINE = Machine("llama", "h100", "F(n, m) of llama on h100 at 50% MFU", 131_072.0, 400_000, 2.5)
SIZES = (6_250, 12_500, 25_000, 50_000, NEED, 2 * NEED)
SPACE = Space(SIZES[:5], most_replicas=64)
CEILINGS = (Ceiling("token", "of all tokens", 0.8), Ceiling("block", "of all <blocks>", 0.75))
TRAFFIC = Traffic(
    "chat.jsonl", 4000, 3600.0, 5_000_000, 800_000, 512, 400, NEED, CEILINGS, ("replies are <not> named",)
)
DEFINITIONS = {
    "hit rate": "reused prompt tokens / prompt tokens",
    "optimum": "of clairvoyant eviction",
    "TTFT": "time to first token",
}


def line(policy: str, factor: float, timed: bool = False) -> Line:
    cases = [Case(Design(size)) for size in SIZES]
    return Line(
        policy,
        tuple(
            Point(size, factor * hit_rate_of(case), outcome_of(case) if timed else None)
            for size, case in zip(SIZES, cases, strict=True)
        ),
    )


CURVES = Curves(
    (line("default", 0.95, timed=True), line("lru", 0.9), line("fifo", 0.8)),
    line("optimum", 1.0),
    (Knee(NEED, 0.76, 50.0, 0.0),),
    (48.4, 48.4, 48.4, 48.4, 0.0),
)


def report(goals: Goals | None = None) -> Report:
    """Of a plan for `goals`, or of the curves alone."""
    if goals is None:
        return Report("sapwood plan chat.jsonl", TRAFFIC, MACHINE, CURVES, definitions=DEFINITIONS)
    planner = Planner(goals, SPACE, FormulaJudge(), MACHINE.price_per_hour)
    plan = planner.plan()
    design = plan.answer.design
    return Report(
        "sapwood plan chat.jsonl --ttft-p95 4s",
        TRAFFIC,
        MACHINE,
        CURVES,
        Timed(1000, 900.0, 2048, 128),
        goals,
        plan,
        plan.answer,
        what_ifs(planner, design),
        sensitivity(planner, design),
        DEFINITIONS,
    )
