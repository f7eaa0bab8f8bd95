"""The tables of a plan, in words: each built once, whoever shows it."""

from __future__ import annotations

from sapwood.cli import plan_words as words
from sapwood.cli.plan_report import Line, Report
from sapwood.cli.plan_table import Table, TableRow
from sapwood.sim import Outcome, Shift, WhatIf

_TIMES = ("TTFT p50", "p95", "load")


def curve_table(report: Report) -> Table:
    """Hit rate by memory, a row for each size of the first policy; rows of knees stand out."""
    curves = report.curves
    header = (
        "memory",
        "tokens",
        "optimum",
        *(line.policy for line in curves.lines),
        f"points per {words.Gains.of(report).unit}",
        "per 1M",
        *_TIMES,
        "refused",
        "",
    )
    return Table.of(header, [_size(report, k) for k in range(len(curves.lines[0].points))])


def what_if_table(report: Report) -> Table:
    """A row for each change, the first as planned; bars are of the TTFT p95."""
    times = [each.row.outcome.ttft_p95 for each in report.what_ifs]
    longest = max((time for time in times if time < float("inf")), default=1.0) or 1.0
    header = ("", "hit rate", *_TIMES, "TPOT p50", "busiest", "refused", "goals")
    return Table.of(header, [_what_if(report, each, longest) for each in report.what_ifs])


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
        words.gigabytes(report.machine.gigabytes(point.capacity_tokens)),
        f"{point.capacity_tokens:,}",
        *(_rate(line, index) for line in (curves.optimum, *curves.lines)),
        gains.points(curves.gains[index]) if index < len(curves.gains) else "",
        "" if point.cost is None else f"{point.cost:.3g}",
        *_times(point.outcome),
        words.refused(point.refused),
        f"← {remark}" if remark else "",
    )
    return TableRow(cells, here=bool(marks))


def _rate(line: Line | None, index: int) -> str:
    if line is None or index >= len(line.points):
        return ""
    return f"{100 * line.points[index].hit_rate:.1f}"


def _times(outcome: Outcome | None) -> tuple[str, str, str]:
    """TTFT p50 and p95, and load."""
    if outcome is None:
        return "", "", ""
    load = "" if outcome.load is None else words.load(outcome.load)
    return words.seconds(outcome.ttft_p50), words.seconds(outcome.ttft_p95), load


def _against_replicas(report: Report, index: int) -> list[str]:
    """At the largest size that they hold, or else at the first that they do not."""
    machine, unit = report.machine, report.traffic.unit_tokens
    whose = "a replica has" if machine.replicas == 1 else f"{machine.replicas} replicas have"
    left = [machine.held_tokens - point.capacity_tokens for point in report.curves.lines[0].points]
    if 0 <= left[index] < unit:
        return [f"all that {whose}"]
    first = left[index] < 0 and (index == 0 or left[index - 1] >= unit)
    return [f"from here on more than {whose}"] if first else []


def _what_if(report: Report, each: WhatIf, longest: float) -> TableRow:
    outcome = each.row.outcome
    cells = (
        words.change(each),
        words.percent(outcome.hit_rate),
        *_times(outcome),
        words.seconds(outcome.tpot_p50),
        f"{outcome.busiest:.2f} ×" if each.row.design.replicas > 1 else "",
        words.refused(outcome.refused),
        words.verdict(each.meets, each.row.outcome) if report.goals.given else "",
    )
    first = each is report.what_ifs[0]
    return TableRow(cells, here=first, bar=min(1.0, outcome.ttft_p95 / longest), good=each.meets)


def _shift(report: Report, each: Shift) -> TableRow:
    needed = str(each.replicas) if each.replicas else "none is enough"
    cells = (
        words.shift(each),
        words.percent(each.outcome.hit_rate),
        *_times(each.outcome),
        words.verdict(each.meets, each.outcome) if report.goals.given else "",
        needed if report.goals.of_answers else "",
    )
    return TableRow(cells, good=each.meets)
