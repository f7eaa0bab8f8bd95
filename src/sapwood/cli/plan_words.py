"""Numbers of a plan in words that text and HTML share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from sapwood.cli import plan_numbers as numbers
from sapwood.cli.plan_numbers import counted as counted
from sapwood.cli.plan_numbers import gigabytes as gigabytes
from sapwood.cli.plan_numbers import money as money
from sapwood.cli.plan_numbers import percent as percent
from sapwood.cli.plan_numbers import seconds as seconds
from sapwood.cli.plan_numbers import tokens as tokens
from sapwood.cli.plan_report import Machine, Report
from sapwood.sim import Design, Goals, Outcome, Plan, Row, Shift, Shortfall, WhatIf, keeping_up

_UNITS = tuple(10.0**power for power in range(3, -7, -1))
"""GB: 1 TB, 100 GB and so on down."""


def load(value: float | None) -> str:
    """Of what can be computed in the time that there is: `85 %`, and never `100 %` for what is not quite."""
    if value is None:
        return "–"
    return numbers.load(value, numbers.apart(value, 1.0, numbers.load, 0))


def memory(machine: Machine, count: int) -> str:
    return f"{gigabytes(machine.gigabytes(count))} ({tokens(count)} tokens)"


def replicas(count: int) -> str:
    return counted(count, "replica")


def goals(goals: Goals, machine: Machine) -> str:
    """`TTFT p95 ≤ 5 s, hit rate ≥ 80.0 %`, with as many digits as were given."""
    parts = [f"{goal} ≤ {exact_seconds(wanted)}" for goal, wanted in goals.times.items()]
    if goals.hit_rate is not None:
        parts.append(f"hit rate ≥ {exact_percent(goals.hit_rate)}")
    if goals.price_per_hour is not None:
        parts.append(f"at most {numbers.exact(goals.price_per_hour, money, 2)} an hour")
    if goals.total_tokens is not None:
        parts.append(f"at most {gigabytes(machine.gigabytes(goals.total_tokens))} of KV in all")
    return ", ".join(parts)


def exact_seconds(goal: float) -> str:
    """As it was given."""
    return numbers.exact_seconds(goal)


def exact_percent(goal: float) -> str:
    """As it was given."""
    return numbers.exact(goal, percent, 1)


def price(plan: Plan, machine: Machine) -> str:
    """`20 an hour (8 × 2.50), in the currency of --price`; nothing where nobody said what one costs."""
    if plan.price_per_hour is None or machine.price_per_hour is None:
        return ""
    each = f" ({plan.answer.design.replicas} × {money(machine.price_per_hour)})"
    several = each if plan.answer.design.replicas > 1 else ""
    return f"{money(plan.price_per_hour)} an hour{several}, in the currency of --price"


def hit_rate(outcome: Outcome, goals: Goals) -> str:
    """With as many digits as tell it from the goal."""
    return _beside(outcome.hit_rate, goals.hit_rate, percent, 1)


def ttft_p95(outcome: Outcome, goals: Goals) -> str:
    """With as many digits as tell it from the goal."""
    return _beside(outcome.ttft_p95, goals.ttft_p95, seconds, 3)


def _beside(value: float, goal: float | None, show: numbers.Shown, digits: int) -> str:
    return show(value, digits if goal is None else numbers.apart(value, goal, show, digits))


def shortfall(short: Shortfall, machine: Machine) -> str:
    """`TTFT p95 is 7.1 s, not 5 s`."""
    if short.goal == "load":
        return f"falls behind, asked for {load(short.got)} of what it can compute"
    if short.goal == "requests served":
        return f"{counted(int(short.got), 'request')} can be served, not {short.wanted:,.0f}"
    show, digits = _shown(short, machine)
    digits = numbers.apart(short.got, short.wanted, show, digits)
    return f"{short.goal} is {show(short.got, digits)}, not {show(short.wanted, digits)}"


def _shown(short: Shortfall, machine: Machine) -> tuple[numbers.Shown, int]:
    """How a value of this goal is written, and with how many digits at least."""
    if short.goal.startswith(("TTFT", "TPOT")):
        return seconds, 3
    if short.goal == "hit rate":
        return percent, 1
    if short.goal == "price per hour":
        return money, 2
    return lambda value, digits: gigabytes(machine.gigabytes(value), digits), 3


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
        f"pages of {counted(each.page_size, 'token')}",
        f"index {each.prefix_index}",
    ]
    return ", ".join([*parts, *([f"routing {each.routing}"] if each.replicas > 1 else [])])


def outcome(each: Outcome, goals: Goals | None = None) -> str:
    goals = Goals() if goals is None else goals
    parts = [f"TTFT p95 {ttft_p95(each, goals)}", f"hit rate {hit_rate(each, goals)}"]
    return ", ".join([*parts, *_load_and_refusals(each)])


def _load_and_refusals(each: Outcome) -> list[str]:
    parts = [] if each.load is None else [f"load {load(each.load)}"]
    if each.refused:
        parts.append(f"{each.refused:,} of {counted(each.requests, 'request')} refused")
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
        return f"{answer}: {outcome(plan.answer.outcome, report.goals)}"
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
        f"unlimited memory would; beyond, {gains.amount} more brings {gains.points(knee.gain_after)} points instead of "
        f"{gains.points(knee.gain_before)}"
    )


@dataclass(frozen=True, slots=True)
class Gains:
    """Points of hit rate that so much memory brings: one unit for a whole report, at most a tenth of its largest size.

    Attributes:
        amount: of memory, in words: `1 TB`, `100 GB`.
    """

    amount: str
    gigabytes: float

    @classmethod
    def of(cls, report: Report) -> Gains:
        largest = report.machine.gigabytes(report.curves.lines[0].points[-1].capacity_tokens)
        size = next((each for each in _UNITS if 10 * each <= largest), _UNITS[-1])
        return cls(gigabytes(size), size)

    @property
    def column(self) -> str:
        return f"points per {self._unit}"

    @property
    def _unit(self) -> str:
        return self.amount.removeprefix("1 ")

    def points(self, per_gb: float) -> str:
        return numbers.figures(per_gb * self.gigabytes)

    def meaning(self, report: Report) -> str:
        """Of their column: what it is, and why it may jump."""
        told = f"points by which the hit rate rises on the way to the next row, for each {self._unit} of it"
        gains = report.curves.gains
        if any(later > 1.5 * max(gain, 0) and later > 0.1 * max(gains) for gain, later in pairwise(gains)):
            told += "; it jumps where a whole prefix that many share fits only from the next row on"
        return told


def meanings(report: Report) -> Mapping[str, str]:
    """Each term that the report uses, once; where the times come from is told above all tables."""
    told = {name: meaning for name, meaning in report.definitions.items() if name != "times"}
    gains = Gains.of(report)
    return {**told, gains.column: gains.meaning(report)} if report.curves.gains else told
