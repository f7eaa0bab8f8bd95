"""A plan as one JSON document. What never came, or is not known, is null."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from sapwood.cli import plan_words as words
from sapwood.cli.plan_report import Line, Machine, Report
from sapwood.sim import Case, Design, Outcome, Plan, Row, Shift, Shortfall, WhatIf, keeping_up

Json = dict[str, Any]


def as_json(report: Report) -> Json:
    """`rows`, `optimum` and `definitions` for tools; the rest in the same words as the text."""
    machine = report.machine
    document: Json = {
        "headline": words.headline(report),
        "notes": [*report.traffic.assumed, *report.traffic.notes],
        "rows": [row for line in report.curves.lines for row in _rows(line, machine)],
        "optimum": _rows(report.curves.optimum, machine) if report.curves.optimum else [],
        "knees": [asdict(knee) for knee in report.curves.knees],
        "gain_points_per_gb": list(report.curves.gains),
        "trace": {**asdict(report.traffic), "ceiling": report.traffic.ceiling},
        "machine": asdict(machine),
        "timed": None if report.timed is None else asdict(report.timed),
        "goals": asdict(report.goals),
        "plan": None if report.plan is None else _plan(report.plan, machine),
        "basis": None if report.basis is None else _basis(report.basis, machine),
        "what_ifs": [_what_if(each, machine) for each in report.what_ifs],
        "sensitivity": [_shift(each) for each in report.shifts],
        "definitions": {**report.definitions, **words.meanings(report)},
        "command": report.command,
    }
    return {key: _finite(value) for key, value in document.items()}


def _rows(line: Line, machine: Machine) -> list[Json]:
    return [
        {
            "policy": line.policy,
            "capacity_tokens": point.capacity_tokens,
            "capacity_bytes": round(point.capacity_tokens * machine.kv_bytes),
            "hit_rate": point.hit_rate,
            "weighting": "token",
            "cost_per_million_prompt_tokens": point.cost,
            "refused": point.refused,
            "held": point.capacity_tokens <= machine.held_tokens,
            **(_times(point.outcome) if point.outcome else {"ttft_p50_ms": None, "ttft_p95_ms": None}),
        }
        for point in line.points
    ]


def _times(outcome: Outcome) -> Json:
    """Bounds that so few requests do not set are null."""
    between = outcome.ttft_p95_between
    return {
        "ttft_p95_low_ms": None if between is None else 1000 * between.low,
        "ttft_p95_high_ms": None if between is None else 1000 * between.high,
        **_milliseconds(outcome),
    }


def _milliseconds(outcome: Outcome) -> Json:
    return {
        f"{name}_ms": 1000 * getattr(outcome, name)
        for name in ("ttft_p50", "ttft_p95", "ttft_p99", "ttft_mean", "tpot_p50", "tpot_p95", "queue_p95")
    }


def _outcome(outcome: Outcome) -> Json:
    return {
        "requests": outcome.requests,
        "refused": outcome.refused,
        "refused_by_all": outcome.refused_by_all,
        "hit_rate": outcome.hit_rate,
        "weighting": "token",
        **_times(outcome),
        "busiest_over_mean": outcome.busiest,
        "load": outcome.load,
        "seconds": outcome.seconds,
    }


def _design(design: Design, machine: Machine) -> Json:
    return {
        **asdict(design),
        "capacity_bytes": round(design.capacity_tokens * machine.kv_bytes),
        "tiers": ["hot"],
    }


def _row(row: Row, machine: Machine) -> Json:
    return {**_case(row.case, machine), "outcome": _outcome(row.outcome)}


def _basis(row: Row, machine: Machine) -> Json:
    """What the what-ifs start from: the plan, or what there is; `replicas_for_load` would about keep up with it."""
    load = row.outcome.load
    enough = None if load is None else keeping_up(load, row.design.replicas)
    return {**_row(row, machine), "replicas_for_load": enough}


def _case(case: Case, machine: Machine) -> Json:
    return {"design": _design(case.design, machine), "traffic": case.traffic, "speed": case.speed}


def _plan(plan: Plan, machine: Machine) -> Json:
    return {
        "met": plan.met,
        **_row(plan.answer, machine),
        "price_per_hour": plan.price_per_hour,
        "shortfalls": [_shortfall(each) for each in plan.shortfalls],
        "tried": [
            {**_row(row, machine), "meets": _meets(plan, row, machine)} for row in _different(plan.tried)
        ],
    }


def _different(rows: Sequence[Row]) -> list[Row]:
    """The first of those that are the same but for what makes no difference to them."""
    found: dict[Case, Row] = {}
    for row in rows:
        found.setdefault(_that_matters(row.case), row)
    return list(found.values())


def _that_matters(case: Case) -> Case:
    """Without a router where there is nothing to choose from."""
    if case.design.replicas > 1:
        return case
    return replace(case, design=replace(case.design, routing="prefix"))


def _meets(plan: Plan, row: Row, machine: Machine) -> bool:
    return not plan.goals.shortfalls(row.design, row.outcome, machine.price_per_hour)


def _shortfall(short: Shortfall) -> Json:
    return {"goal": short.goal, "wanted": short.wanted, "got": short.got}


def _what_if(each: WhatIf, machine: Machine) -> Json:
    return {"change": each.change, "meets": each.meets, "held": each.held, **_row(each.row, machine)}


def _shift(each: Shift) -> Json:
    return {
        "traffic": each.traffic,
        "speed": each.speed,
        "meets": each.meets,
        "replicas_needed": each.replicas,
        "outcome": _outcome(each.outcome),
    }


def _finite(value: Any) -> Any:
    """JSON has no infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value
