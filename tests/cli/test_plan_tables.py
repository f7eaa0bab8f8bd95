"""One table, whoever shows it."""

from __future__ import annotations

import re
from html import unescape

import pytest

from cli.plans import SIZES, report
from sapwood.cli.plan_html import as_html
from sapwood.cli.plan_report import Report
from sapwood.cli.plan_table import Table, lines
from sapwood.cli.plan_tables import curve_table, shift_table, what_if_table
from sapwood.cli.plan_text import as_text
from sapwood.sim.goals import Goals

PLANNED = report(Goals(ttft_p95=4.0))


def tables_in(html: str) -> list[list[list[str]]]:
    """Words of all cells, without the bars."""
    return [
        [
            [unescape(cell) for cell in re.findall(r"<t[hd](?: class=\"\w+\")?>([^<]*)</t[hd]>", row)]
            for row in re.findall(r"<tr.*?</tr>", table)
        ]
        for table in re.findall(r"<table>.*?</table>", html, re.DOTALL)
    ]


@pytest.mark.parametrize("shown", [PLANNED, report(), report(Goals(total_tokens=100_000))])
def test_page_and_terminal_show_the_same_words(shown: Report) -> None:
    built = [curve_table(shown)]
    built += [what_if_table(shown), shift_table(shown)] if shown.what_ifs else []
    text, html = as_text(shown), as_html(shown)
    for table, found in zip(built, tables_in(html), strict=True):
        wanted = [list(table.header), *(list(row.cells) for row in table.rows)]
        bars = any(row.bar is not None for row in table.rows)
        assert [row[: len(table.header)] for row in found] == wanted
        assert len(found[0]) == len(table.header) + bars
        assert "\n".join(lines(table)) in text


def test_a_knee_stands_out_and_says_so() -> None:
    table = curve_table(report())
    assert [row.here for row in table.rows] == [size == SIZES[4] for size in SIZES]
    assert [row.cells[-1] for row in table.rows if row.here] == ["← knee"]


def test_bars_are_of_the_longest_time_and_tell_who_misses() -> None:
    table = what_if_table(PLANNED)
    rows = {row.cells[0]: row for row in table.rows}
    assert table.rows[0].here
    assert max(row.bar or 0 for row in table.rows) == 1
    assert rows["one replica less"].bar == 1
    assert rows["as planned"].bar == pytest.approx(4 / 24)
    assert (rows["as planned"].good, rows["no reuse"].good) == (True, False)
    assert (rows["as planned"].cells[-1], rows["no reuse"].cells[-1]) == ("met", "missed")


def verdicts(table: Table) -> list[str]:
    return [row.cells[table.header.index("goals")] for row in table.rows]


def test_without_goals_there_is_no_verdict() -> None:
    assert "goals" not in curve_table(report()).header
    assert set(verdicts(shift_table(PLANNED))) == {"met", "missed"}
