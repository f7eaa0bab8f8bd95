"""The tables of a plan, in words: each built once, whoever shows it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from sapwood.cli import plan_words as words
from sapwood.cli.plan_report import Line, Report
from sapwood.cli.plan_table import Bar, Scale, Table, TableRow
from sapwood.sim import Outcome, Shift, WhatIf

_TIMES = ("TTFT p50", "p95", "load")


def curve_table(report: Report) -> Table:
    """Hit rate by memory, a row for each size of the first policy, and one for the plan; that one stands out."""
    curves = report.curves
    header = (
        "memory",
        "tokens",
        "optimum",
        *(line.policy for line in curves.lines),
        words.Gains.of(report).column,
        "price per 1M",
        *_TIMES,
        "refused",
        "",
    )
    points = curves.lines[0].points
    sizes = {point.capacity_tokens: _size(report, k) for k, point in enumerate(points)}
    planned = _planned(report)
    if planned is not None and report.basis is not None:
        total = report.basis.design.total_tokens
        sizes[total] = _both(planned, sizes.get(total))
    return Table.of(header, [sizes[size] for size in sorted(sizes)])


def what_if_table(report: Report) -> Table:
    """A row for each change, the first as planned; bars are of what goals can be of, each on a scale from 0."""
    outcomes, goals = [each.row.outcome for each in report.what_ifs], report.goals
    longest = _longest([each.ttft_p95 for each in outcomes], goals.ttft_p95)
    most = _longest([each.hit_rate for each in outcomes], goals.hit_rate)
    header = ("", "hit rate", *_TIMES, "TPOT p50", "busiest", "refused", "goals")
    scales = {
        "hit rate": _scale(
            words.percent(most), most, goals.hit_rate, lambda goal: f"≥ {words.exact_percent(goal)}"
        ),
        "p95": _scale(
            words.seconds(longest), longest, goals.ttft_p95, lambda goal: f"≤ {words.exact_seconds(goal)}"
        ),
    }
    return Table.of(header, [_what_if(report, each, longest, most) for each in report.what_ifs], scales)


def _longest(values: Sequence[float], goal: float | None) -> float:
    """Of those that came, and of the goal, which is to have its place on the scale."""
    return max((value for value in (*values, goal or 0.0) if math.isfinite(value)), default=0.0) or 1.0


def _scale(top: str, longest: float, goal: float | None, show: Callable[[float], str]) -> Scale:
    return Scale(top) if goal is None else Scale(top, show(goal), goal / longest)


def shift_table(report: Report) -> Table:
    """A row for each way in which the world may be other than assumed."""
    header = ("", "hit rate", *_TIMES, "goals", "replicas needed")
    return Table.of(header, [_shift(report, each) for each in report.shifts])


def _size(report: Report, index: int) -> TableRow:
    curves, point = report.curves, report.curves.lines[0].points[index]
    gains = words.Gains.of(report)
    marks = ["knee"] if any(knee.capacity_tokens == point.capacity_tokens for knee in curves.knees) else []
    remark = ", ".join([*marks, *_against_replicas(report, index)])
    cells = (
        *_memory(report, point.capacity_tokens),
        *(_rate(line, index) for line in (curves.optimum, *curves.lines)),
        gains.points(curves.gains[index]) if index < len(curves.gains) else "",
        "" if point.cost is None else words.money(point.cost),
        *_times(report, point.outcome),
        words.refused(point.refused),
        f"← {remark}" if remark else "",
    )
    return TableRow(cells)


def _planned(report: Report) -> TableRow | None:
    """Its own memory and times; it has no rates, as those of the other rows are of one pool for all replicas."""
    if report.plan is None or report.basis is None:
        return None
    design, outcome = report.basis.design, report.basis.outcome
    rates = [""] * (1 + len(report.curves.lines))
    remark = f"← the plan: {words.hit_rate(outcome, report.goals)} reused"
    cells = (
        *_memory(report, design.total_tokens),
        *rates,
        "",
        "",
        *_times(report, outcome),
        words.refused(outcome.refused),
        remark,
    )
    return TableRow(cells, here=True)


def _both(planned: TableRow, row: TableRow | None) -> TableRow:
    """One row where the plan has just the memory of another."""
    if row is None:
        return planned
    *cells, remark = (mine or other for mine, other in zip(planned.cells, row.cells, strict=True))
    others = row.cells[-1].removeprefix("← ")
    return replace(planned, cells=(*cells, f"{remark}, {others}" if others else remark))


def _memory(report: Report, count: int) -> tuple[str, str]:
    return words.gigabytes(report.machine.gigabytes(count)), f"{count:,}"


def _rate(line: Line | None, index: int) -> str:
    if line is None or index >= len(line.points):
        return ""
    return f"{100 * line.points[index].hit_rate:.1f}"


def _times(report: Report, outcome: Outcome | None) -> tuple[str, str, str]:
    """TTFT p50 and p95, and load."""
    if outcome is None:
        return "", "", ""
    load = "" if outcome.load is None else words.load(outcome.load)
    return words.seconds(outcome.ttft_p50), words.ttft_p95(outcome, report.goals), load


def _against_replicas(report: Report, index: int) -> list[str]:
    """At the largest size that they hold, or else at the first that they do not."""
    machine, unit = report.machine, report.traffic.unit_tokens
    whose = "a replica has" if machine.replicas == 1 else f"{machine.replicas} replicas have"
    left = [machine.held_tokens - point.capacity_tokens for point in report.curves.lines[0].points]
    if 0 <= left[index] < unit:
        return [f"all that {whose}"]
    first = left[index] < 0 and (index == 0 or left[index - 1] >= unit)
    return [f"from here on more than {whose}"] if first else []


def _what_if(report: Report, each: WhatIf, longest: float, most: float) -> TableRow:
    outcome, goals = each.row.outcome, report.goals
    cells = (
        words.change(each),
        words.hit_rate(outcome, goals),
        *_times(report, outcome),
        words.seconds(outcome.tpot_p50),
        f"{outcome.busiest:.2f} ×" if each.row.design.replicas > 1 else "",
        words.refused(outcome.refused),
        words.verdict(each.meets, outcome) if goals.given else "",
    )
    hits = None if goals.hit_rate is None else outcome.hit_rate >= goals.hit_rate
    soon = None if goals.ttft_p95 is None else outcome.ttft_p95 <= goals.ttft_p95
    bars = {"hit rate": _bar(outcome.hit_rate / most, hits), "p95": _bar(outcome.ttft_p95 / longest, soon)}
    return TableRow(cells, here=each is report.what_ifs[0], good=each.meets, bars=bars)


def _bar(length: float, good: bool | None) -> Bar:
    """What never came fills it, what is not known leaves it empty."""
    return Bar(0.0 if math.isnan(length) else min(1.0, length), good)


def _shift(report: Report, each: Shift) -> TableRow:
    needed = f"{each.replicas:,}" if each.replicas else "none is enough"
    cells = (
        words.shift(each),
        words.hit_rate(each.outcome, report.goals),
        *_times(report, each.outcome),
        words.verdict(each.meets, each.outcome) if report.goals.given else "",
        needed if report.goals.of_answers else "",
    )
    return TableRow(cells, good=each.meets)
