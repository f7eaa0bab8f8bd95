"""One table, whoever shows it."""

from __future__ import annotations

import math
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from cli.plans import SIZES, report
from sapwood.cli.plan_html import as_html
from sapwood.cli.plan_report import Report
from sapwood.cli.plan_table import Bar, Scale, Table, lines
from sapwood.cli.plan_tables import curve_table, shift_table, what_if_table
from sapwood.cli.plan_text import as_text
from sapwood.sim.goals import Goals

PLANNED = report(Goals(ttft_p95=4.0))


class Cells(HTMLParser):
    """Words of all cells, row by row, table by table."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.within = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("th", "td"):
            self.tables[-1][-1].append("")
            self.within = True

    def handle_endtag(self, tag: str) -> None:
        self.within &= tag not in ("th", "td")

    def handle_data(self, data: str) -> None:
        if self.within:
            self.tables[-1][-1][-1] += data


def tables_in(html: str) -> list[list[list[str]]]:
    page = Cells()
    page.feed(html)
    return page.tables


@pytest.mark.parametrize("shown", [PLANNED, report(), report(Goals(total_tokens=100_000))])
def test_page_and_terminal_show_the_same_words(shown: Report) -> None:
    built = [curve_table(shown)]
    built += [what_if_table(shown), shift_table(shown)] if shown.what_ifs else []
    text, html = as_text(shown), as_html(shown)
    for table, found in zip(built, tables_in(html), strict=True):
        assert found == [list(table.header), *(list(row.cells) for row in table.rows)]
        assert "\n".join(lines(table)) in text


def test_a_knee_says_so_but_only_the_plan_stands_out() -> None:
    table = curve_table(report())
    assert not any(row.here for row in table.rows)
    assert [row.cells[-1] for row in table.rows] == ["← knee" if size == SIZES[4] else "" for size in SIZES]
    [plan] = [row for row in curve_table(PLANNED).rows if row.here]
    assert plan.cells[-1] == "← the plan: 80.0 % reused, knee"


def test_a_plan_between_two_sizes_has_a_row_of_its_own() -> None:
    assert PLANNED.basis is not None
    design = replace(PLANNED.basis.design, capacity_tokens=30_000)
    basis = replace(PLANNED.basis, case=replace(PLANNED.basis.case, design=design))
    table = curve_table(replace(PLANNED, basis=basis))
    assert [row.cells[1] for row in table.rows] == [
        "6,250",
        "12,500",
        "25,000",
        "50,000",
        "60,000",
        "100,000",
        "200,000",
    ]
    assert [row.here for row in table.rows] == [False] * 4 + [True, False, False]
    assert table.rows[4].cells[table.header.index("default")] == ""
    assert table.rows[4].cells[table.header.index("p95")] == "4 s"


def test_bars_are_on_one_scale_with_the_goal_and_coloured_by_their_own() -> None:
    shown = report(Goals(ttft_p95=4.0, hit_rate=0.75))
    table = what_if_table(shown)
    rows = {row.cells[0]: row for row in table.rows}
    assert table.rows[0].here
    assert max(row.bars["p95"].length for row in table.rows) == 1
    assert table.scales["p95"] == Scale("24 s", "≤ 4 s", 4 / 24)
    assert table.scales["hit rate"].goal == "≥ 75.0 %"
    assert rows["as planned"].bars["p95"].length == pytest.approx(4 / 24)
    assert (rows["as planned"].good, rows["no reuse"].good) == (True, False)
    assert (rows["as planned"].cells[-1], rows["no reuse"].cells[-1]) == ("met", "missed")
    late = rows["traffic × 2"]
    assert (late.good, late.bars["p95"].good, late.bars["hit rate"].good) == (False, False, True)


def test_a_goal_beside_bars_has_the_digits_that_it_was_given_with() -> None:
    scales = what_if_table(report(Goals(ttft_p95=4.0004, hit_rate=0.14966))).scales
    assert (scales["p95"].goal, scales["hit rate"].goal) == ("≤ 4.0004 s", "≥ 14.966 %")


def test_bars_without_a_goal_have_no_colour_and_no_mark() -> None:
    table = what_if_table(PLANNED)
    assert {row.bars["hit rate"].good for row in table.rows} == {None}
    assert table.scales["hit rate"].mark is None


def test_a_time_that_never_came_fills_its_bar() -> None:
    first, *others = PLANNED.what_ifs
    never = replace(first.row, outcome=replace(first.row.outcome, ttft_p95=math.inf, hit_rate=math.nan))
    row = what_if_table(replace(PLANNED, what_ifs=(replace(first, row=never), *others))).rows[0]
    assert (row.bars["p95"], row.bars["hit rate"]) == (Bar(1.0, False), Bar(0.0))


def verdicts(table: Table) -> list[str]:
    return [row.cells[table.header.index("goals")] for row in table.rows]


def test_without_goals_there_is_no_verdict() -> None:
    assert "goals" not in curve_table(report()).header
    assert set(verdicts(shift_table(PLANNED))) == {"met", "missed"}
