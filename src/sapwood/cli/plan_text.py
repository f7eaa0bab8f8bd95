"""A plan for a terminal: the answer first, then what it rests on."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from sapwood.cli import plan_words as words
from sapwood.cli.plan_report import Report
from sapwood.cli.plan_table import MARKS, lines, plot
from sapwood.cli.plan_tables import curve_table, shift_table, what_if_table


def as_text(report: Report) -> str:
    """Ends with a newline."""
    parts = (_answer, _traffic, _curves, _plot, _what_ifs, _shifts, _ceilings, _definitions)
    sections = ["\n".join(told) for part in parts if (told := list(part(report)))]
    return "\n\n".join(sections) + "\n"


def _answer(report: Report) -> Iterator[str]:
    yield from _wrapped(words.headline(report))
    for assumed in report.traffic.assumed:
        yield from _wrapped(f"assumed: {assumed}")
    if report.goals.given:
        yield f"  goals   {words.goals(report.goals, report.machine)}"
    if (sureness := words.sureness(report)) is not None:
        yield f"  sure    {sureness}"
    if (further := words.further(report)) is not None:
        yield from _wrapped(further)
    if report.plan is not None:
        yield f"  run     {words.settings(report.plan.answer.design)}"
        yield "  tiers   the hot pool alone: others do not exist yet"
        if price := words.price(report.plan, report.machine):
            yield f"  price   {price}"


def _traffic(report: Report) -> Iterator[str]:
    traffic, machine = report.traffic, report.machine
    yield (
        f"{traffic.name}: {words.counted(traffic.requests, 'request')} in {words.seconds(traffic.seconds)}, "
        f"{words.tokens(traffic.prompt_tokens)} prompt tokens (mean {traffic.prompt_tokens / traffic.requests:,.0f}), "
        f"{words.tokens(traffic.output_tokens)} output tokens"
    )
    yield (
        f"{machine.model} on {machine.hardware}: {words.gigabytes(machine.kv_bytes / 1e9)} of KV per token, beside the "
        f"weights room for {words.memory(machine, machine.most_tokens)}"
    )
    if report.timed:
        yield from _wrapped(f"times from {machine.cost}")
    for note in traffic.notes:
        yield from _wrapped(f"note: {note}")


def _curves(report: Report) -> Iterator[str]:
    yield f"Hit rate in percent by memory, of at most {words.percent(report.traffic.ceiling)}"
    yield from lines(curve_table(report))


def _plot(report: Report) -> Iterator[str]:
    first, *others = report.curves.lines
    drawn = [first, *others[:1], *([report.curves.optimum] if report.curves.optimum else [])]
    curves = [[(point.capacity_tokens, point.hit_rate) for point in line.points] for line in drawn]
    ends = [words.gigabytes(report.machine.gigabytes(first.points[k].capacity_tokens)) for k in (0, -1)]
    rows = list(plot(curves, *ends))
    if rows:
        yield "  ".join(f"{mark} {line.policy}" for mark, line in zip(MARKS, drawn, strict=False))
        yield from rows


def _what_ifs(report: Report) -> Iterator[str]:
    if report.what_ifs:
        yield "What if"
        yield from lines(what_if_table(report))


def _shifts(report: Report) -> Iterator[str]:
    if report.shifts:
        yield "If the world is 20 % other than assumed"
        yield from lines(shift_table(report))


def _ceilings(report: Report) -> Iterator[str]:
    yield "Hit rate with unlimited memory, by what is counted (all figures above: the first)"
    for ceiling in report.traffic.ceilings:
        yield from _wrapped(f"{words.percent(ceiling.hit_rate):>7}  {ceiling.name}: {ceiling.text}")


def _definitions(report: Report) -> Iterator[str]:
    for name, meaning in words.meanings(report).items():
        yield from _wrapped(f"{name}: {meaning}")


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, 112, subsequent_indent="  ", break_on_hyphens=False)
