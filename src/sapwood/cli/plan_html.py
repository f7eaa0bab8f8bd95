"""A plan as one page that needs nothing else: the answer first, then what it rests on."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from sapwood.cli import plan_words as words
from sapwood.cli.plan_plots import curve_plot, ttft_plot
from sapwood.cli.plan_report import Report
from sapwood.cli.plan_table import Table, TableRow
from sapwood.cli.plan_tables import curve_table, shift_table, what_if_table

_CSS = """
:root { color-scheme: light dark;
  --ink: #1f2328; --soft: #59636e; --rule: #d1d9e0; --page: #ffffff; --card: #f6f8fa;
  --good: #1a7f37; --bad: #c2410c; --optimum: #59636e;
  --line0: #1a7f37; --line1: #0969da; --line2: #bf8700; --line3: #8250df; --line4: #cf222e; --line5: #0598bc;
  --line6: #bf3989; --line7: #6e7781 }
@media (prefers-color-scheme: dark) { :root {
  --ink: #e6edf3; --soft: #9198a1; --rule: #3d444d; --page: #0d1117; --card: #151b23;
  --good: #3fb950; --bad: #f0883e; --optimum: #9198a1;
  --line0: #3fb950; --line1: #4493f8; --line2: #d29922; --line3: #ab7df8; --line4: #f85149; --line5: #39c5cf;
  --line6: #db61a2; --line7: #9198a1 } }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif }
h1 { font-size: 1rem; font-weight: 600; color: var(--soft); margin: 0 0 .5rem }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .4rem }
p.answer { font-size: 1.45rem; line-height: 1.3; font-weight: 600; margin: .2rem 0 1rem }
p.soft, td.soft, dd, footer, .scale { color: var(--soft) } p.soft { margin: .2rem 0 .8rem }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .6rem }
.card { background: var(--card); border-radius: .5rem; padding: .6rem .8rem }
.card b { display: block; font-size: 1.15rem } .card span { color: var(--soft); font-size: .85rem }
.good { color: var(--good) } .bad { color: var(--bad) }
svg { width: 100%; height: auto; display: block }
.wide { overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .92rem }
th { color: var(--soft); font-weight: 500 } th, td { text-align: right; padding: .25rem .6rem;
  border-bottom: 1px solid var(--rule); white-space: nowrap }
th:first-child, td:first-child { text-align: left } tr.here td { font-weight: 600; background: var(--card) }
td.bar { width: 22%; min-width: 7rem } td.bar i { display: block; height: .7rem; border-radius: .2rem;
  background: var(--line0) } td.bar i.bad { background: var(--bad) }
dt { font-weight: 600; margin-top: .5rem } dd { margin: 0 } code { font-size: .85rem; overflow-wrap: anywhere }
"""


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
    yield f'<p class="answer">{escape(words.headline(report))}.</p>'
    if report.goals.given:
        met = report.plan is not None and report.plan.met
        verdict = '<b class="good">met</b>' if met else '<b class="bad">not met</b>'
        yield f'<p class="soft">Goals: {escape(words.goals(report.goals, report.machine))}: {verdict}</p>'
    if (further := words.further(report)) is not None:
        yield f'<p class="soft">{escape(further)}.</p>'
    if (sureness := words.sureness(report)) is not None:
        yield f'<p class="soft">{escape(sureness)}.</p>'
    traffic = report.traffic
    times = f" Times: {report.machine.cost}." if report.timed else ""
    yield (
        f'<p class="soft">{traffic.requests:,} requests in {words.seconds(traffic.seconds)}, '
        f"{words.tokens(traffic.prompt_tokens)} prompt tokens (mean {traffic.prompt_tokens / traffic.requests:,.0f}), "
        f"{words.tokens(traffic.output_tokens)} output tokens.{escape(times)}</p>"
    )


def _cards(report: Report) -> Iterator[str]:
    if report.basis is None:
        return
    design, outcome, machine = report.basis.design, report.basis.outcome, report.machine
    cards = [
        (str(design.replicas), f"× {machine.hardware}"),
        (words.gigabytes(machine.gigabytes(design.capacity_tokens)), "of KV per replica"),
        (words.seconds(outcome.ttft_p95), "TTFT p95"),
        (words.percent(outcome.hit_rate), "hit rate"),
        (design.eviction_policy, "eviction policy"),
        (design.schedule_policy, "order of the queue"),
        (str(design.page_size), f"token{'s' * (design.page_size > 1)} per page, {design.prefix_index} index"),
        ("hot pool", "the only tier there is"),
    ]
    if design.replicas > 1:
        cards.append((design.routing, "routing"))
    if machine.price_per_hour is not None:
        cards.append((f"{machine.price_per_hour * design.replicas:g}", "per hour"))
    yield '<div class="cards">'
    yield from (
        f'<div class="card"><b>{escape(big)}</b><span>{escape(small)}</span></div>' for big, small in cards
    )
    yield "</div>"


def _curves(report: Report) -> Iterator[str]:
    yield "<h2>What memory brings</h2>"
    yield f'<p class="soft">{escape(report.meaning(["hit rate", "optimum"]))}</p>'
    yield curve_plot(report)
    yield from _table(curve_table(report))


def _what_ifs(report: Report) -> Iterator[str]:
    if not report.what_ifs:
        return
    yield "<h2>What if</h2>"
    meaning = report.meaning(["TTFT", "load"])
    yield f'<p class="soft">One change each, simulated; bars are of the TTFT p95. {escape(meaning)}</p>'
    yield from _table(what_if_table(report))


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
    for name, meaning in report.definitions.items():
        yield f"<dt>{escape(name)}</dt><dd>{escape(meaning)}</dd>"
    for ceiling in report.traffic.ceilings:
        name = f"{words.percent(ceiling.hit_rate)} with unlimited memory, by {ceiling.name}"
        yield f"<dt>{escape(name)}</dt><dd>{escape(ceiling.text)}</dd>"
    for note in report.traffic.notes:
        yield f"<dt>note</dt><dd>{escape(note)}</dd>"
    yield f"</dl>\n<footer><p>Made by <code>{escape(report.command)}</code></p></footer>"


def _table(table: Table) -> Iterator[str]:
    barred = any(row.bar is not None for row in table.rows)
    header = (*table.header, *([""] if barred else []))
    yield f'<div class="wide"><table><tr>{"".join(f"<th>{escape(cell)}</th>" for cell in header)}</tr>'
    for row in table.rows:
        mark = ' class="here"' if row.here else ""
        yield f"<tr{mark}>{''.join(map(_cell, row.cells))}{_bar(row) if barred else ''}</tr>"
    yield "</table></div>"


def _cell(text: str) -> str:
    if (good := words.VERDICTS.get(text)) is not None:
        return f'<td class="{"good" if good else "bad"}">{text}</td>'
    return f"<td>{escape(text)}</td>"


def _bar(row: TableRow) -> str:
    if row.bar is None:
        return "<td></td>"
    kind = "good" if row.good else "bad"
    return f'<td class="bar"><i class="{kind}" style="width:{100 * row.bar:.1f}%"></i></td>'
