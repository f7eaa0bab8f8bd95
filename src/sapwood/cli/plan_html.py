"""A plan as one page that needs nothing else: the answer first, then what it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from sapwood.cli import plan_words as words
from sapwood.cli.plan_plots import curve_plot, ttft_plot
from sapwood.cli.plan_report import Report
from sapwood.cli.plan_style import CSS, stacked
from sapwood.cli.plan_table import Bar, Scale, Table, TableRow
from sapwood.cli.plan_tables import curve_table, shift_table, what_if_table

BROAD = 9
"""Columns: tables that have more are stacked on pages that are not wide."""
NOTES = 3
"""So many are told at once, the others on demand."""
_CSS = CSS + stacked("table.broad", "64rem") + stacked("table", "44rem")


def as_html(report: Report) -> str:
    """The same bytes for the same report. Raises UsageError where matplotlib is not installed."""
    title = f"Plan for {report.traffic.name}"
    parts = (_answer, _cards, _curves, _what_ifs, _shifts, _ttft, _definitions)
    body = "\n".join(line for part in parts for line in part(report))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_CSS}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n{body}\n</body>\n</html>\n"
    )


def _answer(report: Report) -> Iterator[str]:
    headline = escape(words.headline(report)).replace(" %", "&nbsp;%")
    yield f'<p class="answer">{headline}.</p>'
    if report.goals.given:
        met = report.plan is not None and report.plan.met
        verdict = '<b class="good">met</b>' if met else '<b class="bad">not met</b>'
        yield f'<p class="soft">Goals: {escape(words.goals(report.goals, report.machine))}: {verdict}</p>'
    if (further := words.further(report)) is not None:
        yield f'<p class="soft">{escape(further)}.</p>'
    if (sureness := words.sureness(report)) is not None:
        yield f'<p class="soft">{escape(sureness)}.</p>'
    traffic = report.traffic
    yield from (f'<p class="soft">Assumed: {escape(each)}.</p>' for each in traffic.assumed)
    times = f" Times: {report.machine.cost}." if report.timed else ""
    yield (
        f'<p class="soft">{words.counted(traffic.requests, "request")} in {words.seconds(traffic.seconds)}, '
        f"{words.tokens(traffic.prompt_tokens)} prompt tokens (mean {traffic.prompt_tokens / traffic.requests:,.0f}), "
        f"{words.tokens(traffic.output_tokens)} output tokens.{escape(times)}</p>"
    )
    yield from _notes(traffic.notes)


def _notes(notes: Sequence[str]) -> Iterator[str]:
    """What to know before one believes the numbers."""
    yield from _list(notes[:NOTES])
    if more := notes[NOTES:]:
        yield f"<details><summary>{words.counted(len(more), 'more note')}</summary>"
        yield from _list(more)
        yield "</details>"


def _list(lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield f'<ul class="notes">{"".join(f"<li>{escape(line)}</li>" for line in lines)}</ul>'


def _cards(report: Report) -> Iterator[str]:
    if report.basis is None:
        return
    design, outcome, machine = report.basis.design, report.basis.outcome, report.machine
    cards = [
        (str(design.replicas), f"× {machine.hardware}"),
        (words.gigabytes(machine.gigabytes(design.capacity_tokens)), "of KV per replica"),
        (words.ttft_p95(outcome, report.goals), "TTFT p95"),
        (words.hit_rate(outcome, report.goals), "hit rate"),
        (design.eviction_policy, "eviction policy"),
        (design.schedule_policy, "order of the queue"),
        (words.counted(design.page_size, "token"), f"a page, {design.prefix_index} index"),
        ("hot pool", "the only tier there is"),
    ]
    if design.replicas > 1:
        cards.append((design.routing, "routing"))
    if machine.price_per_hour is not None:
        price = words.money(machine.price_per_hour * design.replicas)
        cards.append((price, "an hour, in the currency of --price"))
    yield '<div class="cards">'
    yield from (
        f'<div class="card"><b>{escape(big)}</b><span>{escape(small)}</span></div>' for big, small in cards
    )
    yield "</div>"


def _curves(report: Report) -> Iterator[str]:
    yield "<h2>What memory brings</h2>"
    yield curve_plot(report)
    yield from _table(curve_table(report))


def _what_ifs(report: Report) -> Iterator[str]:
    if not report.what_ifs:
        return
    yield "<h2>What if</h2>"
    table = what_if_table(report)
    yield f'<p class="soft">One change each. {escape(_bars(table.scales))}</p>'
    yield from _table(table)


def _bars(scales: Mapping[str, Scale]) -> str:
    """`Bars: hit rate from 0 to 26 %, goal ≥ 15 %; p95 from 0 to 8 s.`, and how a goal is seen."""
    told = [
        f"{column} from 0 to {scale.top}" + (f", goal {scale.goal}" if scale.goal else "")
        for column, scale in scales.items()
    ]
    goals = any(scale.goal for scale in scales.values())
    return (
        f"Bars: {'; '.join(told)}."
        + " The upright line is the goal: green reaches it, orange does not." * goals
    )


def _shifts(report: Report) -> Iterator[str]:
    if not report.shifts:
        return
    yield "<h2>If the world is other than assumed</h2>"
    yield '<p class="soft">The same design with other traffic, and on hardware other than the cost model says.</p>'
    yield from _table(shift_table(report))


def _ttft(report: Report) -> Iterator[str]:
    if report.basis is None:
        return
    others = {each.change: each.row.outcome for each in report.what_ifs}
    shown = {"as planned" if report.plan else "as it is": report.basis.outcome}
    shown |= {name: others[name] for name in ("no reuse", "half the memory", "order fcfs") if name in others}
    yield "<h2>Time to first token</h2>"
    yield ttft_plot(shown, report.goals.ttft_p95)


def _definitions(report: Report) -> Iterator[str]:
    yield "<h2>What the numbers mean</h2>\n<dl>"
    for name, meaning in words.meanings(report).items():
        yield f"<dt>{escape(name)}</dt><dd>{escape(meaning)}</dd>"
    yield "</dl>\n<details><summary>Hit rate with unlimited memory, by what is counted</summary><dl>"
    for ceiling in report.traffic.ceilings:
        name = f"{words.percent(ceiling.hit_rate)}: {ceiling.name}"
        yield f"<dt>{escape(name)}</dt><dd>{escape(ceiling.text)}</dd>"
    yield f"</dl></details>\n<footer><p>Made by <code>{escape(report.command)}</code></p></footer>"


def _table(table: Table) -> Iterator[str]:
    kind = ' class="broad"' if len(table.header) > BROAD else ""
    yield f"<table{kind}><tr>{''.join(f'<th>{escape(name)}</th>' for name in table.header)}</tr>"
    for row in table.rows:
        mark = ' class="here"' if row.here else ""
        cells = zip(table.header, row.cells, strict=True)
        yield f"<tr{mark}>{''.join(_cell(table, row, name, text) for name, text in cells)}</tr>"
    yield "</table>"


def _cell(table: Table, row: TableRow, name: str, text: str) -> str:
    """Named, so that a narrow page can do without the header."""
    kind = ""
    if name == "goals" and text:
        kind = f' class="{_kind(row.good)}"'
    elif text.startswith("←"):
        kind = ' class="remark"'
    label = f' data-of="{escape(name)}"' if name else ""
    bar = _bar(row.bars[name], table.scales[name]) if name in row.bars and text else ""
    return f"<td{kind}{label}>{escape(text)}{bar}</td>"


def _bar(bar: Bar, scale: Scale) -> str:
    goal = "" if scale.mark is None else f'<s style="left:{100 * scale.mark:.1f}%"></s>'
    kind = "" if bar.good is None else f' class="{_kind(bar.good)}"'
    return f'<i{kind}><u style="width:{100 * bar.length:.1f}%"></u>{goal}</i>'


def _kind(good: bool) -> str:
    return "good" if good else "bad"
