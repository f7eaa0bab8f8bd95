"""Numbers of a plan in words that text and HTML share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sapwood.cli.plan_report import Machine, Report
from sapwood.sim import Design, Goals, Outcome, Row, Shift, Shortfall, WhatIf, keeping_up

VERDICTS: Mapping[str, bool] = MappingProxyType({"met": True, "missed": False, "falls behind": False})
"""On goals, and which of them is good news."""


def percent(rate: float) -> str:
    return "–" if math.isnan(rate) else f"{100 * rate:.1f} %"


def seconds(value: float) -> str:
    """Three figures: `73 ms`, `1.25 s`, `4.1 min`; `never` for what did not come."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "never"
    if value < 0.9995:
        return f"{1000 * value:.3g} ms"
    return f"{value:.3g} s" if value < 600 else f"{value / 60:.3g} min"


def load(value: float | None) -> str:
    """`85 %`, of what can be computed in the time that there is."""
    return "–" if value is None else f"{100 * value:.0f} %"


def tokens(count: float) -> str:
    """`512`, `24.6k`, `1.25M`."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= 0.9995 * size:
            return f"{count / size:.3g}{unit}"
    return f"{count:.0f}"


def gigabytes(value: float) -> str:
    """Decimal, as the vendors of accelerators count."""
    if value >= 1000:
        return f"{value / 1000:.3g} TB"
    return f"{value:.3g} GB" if value >= 1 else f"{1000 * value:.3g} MB"


def memory(machine: Machine, count: int) -> str:
    return f"{gigabytes(machine.gigabytes(count))} ({tokens(count)} tokens)"


def replicas(count: int) -> str:
    return f"{count} replica" + "s" * (count != 1)


def goals(goals: Goals, machine: Machine) -> str:
    """`TTFT p95 ≤ 5 s, hit rate ≥ 80 %`."""
    parts = [f"{goal} ≤ {seconds(wanted)}" for goal, wanted in goals.times.items()]
    if goals.hit_rate is not None:
        parts.append(f"hit rate ≥ {percent(goals.hit_rate)}")
    if goals.price_per_hour is not None:
        parts.append(f"at most {goals.price_per_hour:g} per hour")
    if goals.total_tokens is not None:
        parts.append(f"at most {gigabytes(machine.gigabytes(goals.total_tokens))} of KV in all")
    return ", ".join(parts)


def shortfall(short: Shortfall, machine: Machine) -> str:
    """`TTFT p95 is 7.1 s, not 5 s`."""
    if short.goal == "load":
        return f"falls behind, asked for {load(short.got)} of what it can compute"
    wanted, got = (_goal_value(short, value, machine) for value in (short.wanted, short.got))
    if short.goal == "requests served":
        return f"{got} requests can be served, not {wanted}"
    return f"{short.goal} is {got}, not {wanted}"


def _goal_value(short: Shortfall, value: float, machine: Machine) -> str:
    if short.goal == "requests served":
        return f"{value:,.0f}"
    if short.goal.startswith(("TTFT", "TPOT")):
        return seconds(value)
    if short.goal == "hit rate":
        return percent(value)
    return f"{value:g}" if short.goal == "price per hour" else gigabytes(machine.gigabytes(value))


def sized(each: Design, machine: Machine) -> str:
    """`2 replicas of 4 devices with 6.55 GB of KV each`."""
    size = gigabytes(machine.gigabytes(each.capacity_tokens))
    devices = f" of {machine.devices} devices" if machine.devices > 1 else ""
    return f"{replicas(each.replicas)}{devices} with {size} of KV" + " each" * (each.replicas > 1)


def settings(each: Design) -> str:
    """All that is chosen besides memory and replicas, in the words of the flags."""
    parts = [
        "no reuse" if each.prefix_index == "none" else f"eviction {each.eviction_policy}",
        f"order {each.schedule_policy}",
        f"pages of {each.page_size} token" + "s" * (each.page_size > 1),
        f"index {each.prefix_index}",
    ]
    return ", ".join([*parts, *([f"routing {each.routing}"] if each.replicas > 1 else [])])


def outcome(each: Outcome) -> str:
    parts = [f"TTFT p95 {seconds(each.ttft_p95)}", f"hit rate {percent(each.hit_rate)}"]
    return ", ".join([*parts, *_load_and_refusals(each)])


def _load_and_refusals(each: Outcome) -> list[str]:
    parts = [] if each.load is None else [f"load {load(each.load)}"]
    if each.refused:
        parts.append(f"{each.refused:,} of {each.requests:,} requests refused")
    return parts


def refused(count: int) -> str:
    """Nothing where there is nothing to tell."""
    return f"{count:,}" if count else ""


def change(each: WhatIf) -> str:
    """What is different, and whether it can be had."""
    return each.change if each.held else f"{each.change} (a replica has less)"


def shift(each: Shift) -> str:
    """`traffic +20 %`, or of speed."""
    if each.traffic != 1:
        return f"traffic {100 * (each.traffic - 1):+.0f} %"
    return f"speed {100 * (each.speed - 1):+.0f} %"


def verdict(meets: bool, outcome: Outcome) -> str:
    """On the goals; whoever falls behind meets none."""
    if outcome.overloaded:
        return "falls behind"
    return "met" if meets else "missed"


def needed(row: Row) -> str:
    """`about 8 replicas would keep up`, of what falls behind."""
    return f"about {replicas(keeping_up(row.outcome.load or 0.0, row.design.replicas))} would keep up"


def held(row: Row, machine: Machine) -> str:
    """How what there is does: `1 replica with 55.9 GB of KV falls behind, about 3 replicas would keep up: …`."""
    design, found = row.design, row.outcome
    fall = "fall" if design.replicas > 1 else "falls"
    behind = f" {fall} behind, {needed(row)}" if found.overloaded else ""
    parts = [
        f"TTFT p50 {seconds(found.ttft_p50)}, p95 {seconds(found.ttft_p95)}",
        f"hit rate {percent(found.hit_rate)}",
    ]
    parts += _load_and_refusals(found)
    if found.load is not None and (enough := keeping_up(found.load, design.replicas)) < design.replicas:
        parts.append(f"about {replicas(enough)} would do for the compute")
    return f"{sized(design, machine)}{behind}: {', '.join(parts)}"


def sureness(report: Report) -> str | None:
    """How sure the TTFT p95 of the answer is; None where nothing was simulated or nobody asked."""
    outcome = None if report.basis is None else report.basis.outcome
    if outcome is None or outcome.ttft_p95_between is None or not math.isfinite(outcome.ttft_p95):
        return None
    between, wanted = outcome.ttft_p95_between, report.goals.ttft_p95
    high = "more than can be told" if math.isinf(between.high) else seconds(between.high)
    told = f"TTFT p95 between {seconds(between.low)} and {high}, as far as {outcome.timed:,} requests tell"
    return told + ("; the goal lies within" if wanted is not None and between.holds(wanted) else "")


def headline(report: Report) -> str:
    """The answer in one line: the plan, or how what there is does, or what memory brings."""
    plan = report.plan
    if plan is None:
        return _knee(report) if report.basis is None else held(report.basis, report.machine)
    answer = sized(plan.answer.design, report.machine)
    if plan.met:
        return f"{answer}: {outcome(plan.answer.outcome)}"
    missed = "; ".join(shortfall(short, report.machine) for short in plan.shortfalls)
    missed += f"; {needed(plan.answer)}" if plan.answer.outcome.overloaded else ""
    alone = plan.answer.outcome.overloaded and not report.goals.of_answers
    nothing = "Nothing within the budget keeps up" if alone else "No plan meets the goals"
    return f"{nothing}. Nearest, {answer}: {missed}"


def further(report: Report) -> str | None:
    """What memory brings, where that is not the headline and there is no plan."""
    return None if report.basis is None or report.plan is not None else _knee(report)


def _knee(report: Report) -> str:
    traffic, curves = report.traffic, report.curves
    if not curves.knees:
        return f"At most {percent(traffic.ceiling)} of the prompt tokens can be reused; no size of memory stands out"
    knee = curves.knees[-1]
    size = gigabytes(report.machine.gigabytes(knee.capacity_tokens))
    gains = Gains.of(report)
    return (
        f"{size} of KV reuse {percent(knee.hit_rate)} of the prompt tokens, of {percent(traffic.ceiling)} that "
        f"unlimited memory would; beyond, a {gains.unit} brings {gains.points(knee.gain_after)} points instead of "
        f"{gains.points(knee.gain_before)}"
    )


@dataclass(frozen=True, slots=True)
class Gains:
    """Points of hit rate that memory brings, per GB or per TB: whichever is no larger than the largest size shown."""

    unit: str
    gigabytes: float

    @classmethod
    def of(cls, report: Report) -> Gains:
        largest = report.machine.gigabytes(report.curves.lines[0].points[-1].capacity_tokens)
        return cls("TB", 1000.0) if largest >= 1000 else cls("GB", 1.0)

    def points(self, per_gb: float) -> str:
        return f"{per_gb * self.gigabytes:.3g}"
