"""A plan as one page: whole in itself, the same each time, in the page's colours."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from cli.plans import DEFINITIONS, report
from sapwood.cli.plan_html import as_html
from sapwood.cli.plan_plots import curve_plot
from sapwood.errors import UsageError
from sapwood.sim.goals import Goals

GOALS = Goals(ttft_p95=4.0, hit_rate=0.5)
VOID = {"meta", "br", "link", "path", "use"}


class Balance(HTMLParser):
    """Every element that begins ends, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [str(value) for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del tag
        self.ids += [str(value) for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def test_it_is_well_formed_and_no_id_comes_twice() -> None:
    page = Balance()
    page.feed(as_html(report(GOALS)))
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))


def test_nothing_is_fetched() -> None:
    html = as_html(report(GOALS))
    urls = set(re.findall(r"https?:[^\"' <)]+", html))
    assert urls <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert not re.search(r"<(script|link|img|iframe)|@import|src=", html)
    assert all(found.startswith("#") for found in re.findall(r"url\(([^)]*)\)", html))


def test_what_is_assumed_stands_before_the_figures() -> None:
    whole = report(GOALS)
    page = as_html(replace(whole, traffic=replace(whole.traffic, assumed=("4 bytes <a token>",))))
    assert page.index("Assumed: 4 bytes &lt;a token&gt;.") < page.index("<h2>")


def test_the_same_report_gives_the_same_bytes() -> None:
    assert as_html(report(GOALS)) == as_html(report(GOALS))


def test_the_plots_take_the_colours_of_the_page() -> None:
    html = as_html(report(GOALS))
    assert html.count("<svg") == 2
    style, _, body = html.partition("</style>")
    assert "prefers-color-scheme: dark" in style
    assert re.findall(r"#[0-9a-f]{6}", body) == []
    for name in set(re.findall(r"var\(--(\w+)\)", body)):
        assert style.count(f"--{name}:") == 2


def test_the_answer_is_read_first_and_every_part_is_there() -> None:
    html = as_html(report(GOALS))
    places = [
        html.index(each)
        for each in (
            "2 replicas with 6.55 GB of KV each",
            "What memory brings",
            "knee: 13.1 GB",
            "half the memory",
            "speed -20 %",
            "Time to first token",
            "What the numbers mean",
        )
    ]
    assert places == sorted(places)
    assert "replies are &lt;not&gt; named" in html


def test_what_is_refused_and_what_cannot_be_had_is_told_where_there_is_any() -> None:
    whole = report(GOALS)
    assert "refused" not in as_html(whole)
    first, *others = whole.what_ifs
    refusing = replace(first.row, outcome=replace(first.row.outcome, refused=1200))
    html = as_html(replace(whole, what_ifs=(replace(first, row=refusing, held=False), *others)))
    assert "<th>refused</th>" in html
    assert '<td data-of="refused">1,200</td>' in html
    assert "as planned (a replica has less)" in html


def test_a_missed_goal_is_seen_as_missed() -> None:
    shown = report(Goals(hit_rate=0.75))
    first, *others = shown.what_ifs
    close = replace(first.row, outcome=replace(first.row.outcome, hit_rate=0.74996))
    html = as_html(replace(shown, what_ifs=(replace(first, row=close, meets=False), *others)))
    assert 'data-of="hit rate">74.996 %<i class="bad">' in html
    assert "goal ≥ 75.0 %" in html


def test_what_to_know_first_is_near_the_top_and_what_is_defined_is_told_once() -> None:
    shown = report(GOALS)
    notes = tuple(f"caveat {n}" for n in range(5))
    html = as_html(replace(shown, traffic=replace(shown.traffic, notes=notes)))
    assert all(html.count(note) == 1 for note in notes)
    assert all(html.count(DEFINITIONS[name]) == 1 for name in ("hit rate", "optimum"))
    assert html.index("caveat 2") < html.index("<summary>2 more notes</summary>") < html.index("caveat 3")
    assert html.index("caveat 4") < html.index("What memory brings")
    assert html.index("<svg") < html.index(DEFINITIONS["optimum"])


def test_on_a_narrow_page_each_number_has_its_name() -> None:
    html = as_html(report(GOALS))
    assert "td::before { content: attr(data-of)" in html
    names = set(re.findall(r'<td[^>]* data-of="([^"]+)"', html))
    assert {"hit rate", "TTFT p50", "p95", "goals", "memory", "tokens"} <= names


def test_of_a_budget_alone_no_replicas_are_asked_for() -> None:
    assert "replicas needed" in as_html(report(GOALS))
    html = as_html(report(Goals(total_tokens=100_000)))
    assert "replicas needed" not in html
    assert "none is enough" not in html


def test_the_place_on_the_curve_is_named_by_what_it_is() -> None:
    planned = report(GOALS)
    held = replace(planned, plan=None, what_ifs=(), shifts=())
    assert ">plan</text>" in curve_plot(planned)
    assert ">as it is</text>" in curve_plot(held)
    assert "what-ifs" not in curve_plot(held)


def test_without_goals_it_shows_the_curve_alone() -> None:
    html = as_html(report())
    assert html.count("<svg") == 1
    assert "What if" not in html


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match="need matplotlib") as caught:
        as_html(report())
    assert caught.value.hint == "pip install 'sapwood[plots]'"
