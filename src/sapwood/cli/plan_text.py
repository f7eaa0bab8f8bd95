"""A plan for a terminal: the answer first, then what it rests on."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from sapwood.cli import plan_words as words
from sapwood.cli.plan_report import Line, Report
from sapwood.cli.plan_table import MARKS, plot, table
from sapwood.sim import Outcome, Shift, WhatIf


def as_text(report: Report) -> str:
    """Ends with a newline."""
    parts = (_answer, _traffic, _curves, _plot, _what_ifs, _shifts, _ceilings, _definitions)
    sections = ["\n".join(lines) for part in parts if (lines := list(part(report)))]
    return "\n\n".join(sections) + "\n"


def _answer(report: Report) -> Iterator[str]:
    yield from _wrapped(words.headline(report))
    if report.goals.given:
        yield f"  goals   {words.goals(report.goals, report.machine)}"
    if report.plan is not None:
        yield f"  run     {words.settings(report.plan.answer.design)}"
        yield "  tiers   the hot pool alone: others do not exist yet"
        if report.plan.price_per_hour is not None:
            yield f"  price   {report.plan.price_per_hour:g} per hour"


def _traffic(report: Report) -> Iterator[str]:
    traffic, machine = report.traffic, report.machine
    yield (
        f"{traffic.name}: {traffic.requests:,} requests in {words.seconds(traffic.seconds)}, "
        f"{words.tokens(traffic.prompt_tokens)} prompt tokens (mean {traffic.prompt_tokens / traffic.requests:,.0f}), "
        f"{words.tokens(traffic.output_tokens)} output tokens"
    )
    yield (
        f"{machine.model} on {machine.hardware}: {machine.kv_bytes / 1000:,.0f} kB of KV per token, beside the weights "
        f"room for {words.memory(machine, machine.most_tokens)}"
    )
    for note in traffic.notes:
        yield from _wrapped(f"note: {note}")


def _curves(report: Report) -> Iterator[str]:
    curves = report.curves
    first, *others = curves.lines
    optimum, gains = curves.optimum, words.Gains.of(report)
    header = [
        "memory",
        "tokens",
        "optimum",
        *(line.policy for line in curves.lines),
        f"points per {gains.unit}",
        "per 1M",
        "TTFT p50",
        "p95",
        "load",
        "refused",
        "",
    ]
    rows = []
    for k, point in enumerate(first.points):
        rates = [_rate(each, k) for each in (optimum, first, *others)]
        gain = gains.points(curves.gains[k]) if k < len(curves.gains) else ""
        rows.append(
            [
                words.gigabytes(report.machine.gigabytes(point.capacity_tokens)),
                f"{point.capacity_tokens:,}",
                *rates,
                gain,
                "" if point.cost is None else f"{point.cost:.3g}",
                *_times(point.outcome),
                words.refused(point.refused),
                _remark(report, k),
            ]
        )
    yield f"Hit rate in percent by memory, of at most {words.percent(report.traffic.ceiling)}"
    yield from table(header, rows)


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


def _remark(report: Report, index: int) -> str:
    size = report.curves.lines[0].points[index].capacity_tokens
    marks = ["knee"] if any(knee.capacity_tokens == size for knee in report.curves.knees) else []
    marks += _against_replicas(report, index)
    return "← " + ", ".join(marks) if marks else ""


def _against_replicas(report: Report, index: int) -> list[str]:
    """At the largest size that they hold, or else at the first that they do not."""
    machine, unit = report.machine, report.traffic.unit_tokens
    whose = "a replica has" if machine.replicas == 1 else f"{machine.replicas} replicas have"
    left = [machine.held_tokens - point.capacity_tokens for point in report.curves.lines[0].points]
    if 0 <= left[index] < unit:
        return [f"all that {whose}"]
    first = left[index] < 0 and (index == 0 or left[index - 1] >= unit)
    return [f"from here on more than {whose}"] if first else []


def _plot(report: Report) -> Iterator[str]:
    first, *others = report.curves.lines
    drawn = [first, *others[:1], *([report.curves.optimum] if report.curves.optimum else [])]
    curves = [[(point.capacity_tokens, point.hit_rate) for point in line.points] for line in drawn]
    ends = [words.gigabytes(report.machine.gigabytes(first.points[k].capacity_tokens)) for k in (0, -1)]
    lines = list(plot(curves, *ends))
    if lines:
        yield "  ".join(f"{mark} {line.policy}" for mark, line in zip(MARKS, drawn, strict=False))
        yield from lines


def _what_ifs(report: Report) -> Iterator[str]:
    if not report.what_ifs:
        return
    yield "What if"
    goals = report.goals.given
    header = ["", "hit rate", "TTFT p50", "p95", "load", "TPOT p50", "busiest", "refused", "goals"]
    yield from table(header, [_what_if(each, goals) for each in report.what_ifs])


def _what_if(each: WhatIf, goals: bool) -> list[str]:
    outcome = each.row.outcome
    return [
        words.change(each),
        words.percent(outcome.hit_rate),
        *_times(outcome),
        words.seconds(outcome.tpot_p50),
        f"{outcome.busiest:.2f} ×" if each.row.design.replicas > 1 else "",
        words.refused(outcome.refused),
        ("met" if each.meets else "missed") if goals else "",
    ]


def _shifts(report: Report) -> Iterator[str]:
    if not report.shifts:
        return
    yield "If the world is 20 % other than assumed"
    header = ["", "hit rate", "TTFT p50", "p95", "load", "goals", "replicas needed"]
    yield from table(header, [_shift(each, report) for each in report.shifts])


def _shift(each: Shift, report: Report) -> list[str]:
    goals, sought = report.goals.given, report.goals.of_answers
    return [
        shift_name(each),
        words.percent(each.outcome.hit_rate),
        *_times(each.outcome),
        ("met" if each.meets else "missed") if goals else "",
        (str(each.replicas) if each.replicas else "none is enough") if sought else "",
    ]


def shift_name(each: Shift) -> str:
    if each.traffic != 1:
        return f"traffic {100 * (each.traffic - 1):+.0f} %"
    return f"speed {100 * (each.speed - 1):+.0f} %"


def _ceilings(report: Report) -> Iterator[str]:
    yield "Hit rate with unlimited memory, by what is counted (all figures above: the first)"
    for ceiling in report.traffic.ceilings:
        yield from _wrapped(f"{words.percent(ceiling.hit_rate):>7}  {ceiling.name}: {ceiling.text}")


def _definitions(report: Report) -> Iterator[str]:
    for name, meaning in report.definitions.items():
        yield from _wrapped(f"{name}: {meaning}")


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, 112, subsequent_indent="  ", break_on_hyphens=False)
