"""A plan for a terminal."""

from __future__ import annotations

from dataclasses import replace

from cli.plans import MACHINE, report
from sapwood.cli.plan_report import Machine
from sapwood.cli.plan_text import as_text
from sapwood.sim.goals import Goals


def test_the_answer_comes_first_and_the_definitions_last() -> None:
    lines = as_text(report(Goals(ttft_p95=4.0))).splitlines()
    assert lines[0] == "2 replicas with 6.55 GB of KV each: TTFT p95 4 s, hit rate 80.0 %"
    assert lines[1] == "  goals   TTFT p95 ≤ 4 s"
    assert "  tiers   the hot pool alone: others do not exist yet" in lines
    assert "  price   5 an hour (2 × 2.50), in the currency of --price" in lines
    assert lines[-2] == "TTFT: time to first token"
    assert lines[-1].startswith("points per GB: ")


def test_where_times_come_from_is_told_once_near_the_top() -> None:
    shown = report(Goals(ttft_p95=4.0))
    text = as_text(replace(shown, definitions={**shown.definitions, "times": f"from {MACHINE.cost}"}))
    assert text.count(MACHINE.cost) == 1
    assert text.index(MACHINE.cost) < text.index("Hit rate in percent by memory")


def test_the_plan_has_a_row_among_the_sizes_of_memory() -> None:
    planned = [line for line in as_text(report(Goals(ttft_p95=4.0))).splitlines() if "← the plan" in line]
    assert [line.split("← ")[1] for line in planned] == ["the plan: 80.0 % reused, knee"]


def test_each_row_of_the_curve_has_memory_rates_gain_and_times() -> None:
    [knee] = [line for line in as_text(report()).splitlines() if "← knee" in line]
    assert knee.split()[:9] == ["13.1", "GB", "100,000", "80.0", "76.0", "72.0", "64.0", "0", "4"]
    assert knee.endswith("  4 s   8 s  ← knee")


def test_a_load_has_a_column_where_it_is_known() -> None:
    known = report(Goals(ttft_p95=4.0))
    assert not [line for line in as_text(known).splitlines() if " load" in line]
    rows = tuple(
        replace(each, row=replace(each.row, outcome=replace(each.row.outcome, load=0.25)))
        for each in known.what_ifs
    )
    lines = as_text(replace(known, what_ifs=rows)).splitlines()
    assert "p95  load  TPOT p50" in lines[lines.index("What if") + 1]
    assert "25 %" in lines[lines.index("What if") + 2]


def test_what_is_refused_and_what_cannot_be_had_is_told_where_there_is_any() -> None:
    whole = report(Goals(ttft_p95=4.0))
    assert "refused" not in as_text(whole)
    first, *others = whole.what_ifs
    refusing = replace(first.row, outcome=replace(first.row.outcome, refused=1200, requests=4000))
    marked = replace(first, row=refusing, held=False)
    lines = as_text(replace(whole, what_ifs=(marked, *others))).splitlines()
    [told] = [line for line in lines if line.strip().startswith("as planned (a replica has less)")]
    assert told.split()[-2:] == ["1,200", "met"]


def test_rows_say_what_the_replicas_hold() -> None:
    def remarks(machine: Machine) -> list[str]:
        lines = as_text(replace(report(), machine=machine)).splitlines()
        return [line.split("← ")[1] for line in lines if "← " in line]

    assert remarks(replace(MACHINE, most_tokens=50_000)) == [
        "all that a replica has",
        "knee",
    ]
    assert remarks(replace(MACHINE, most_tokens=60_000)) == ["knee, from here on more than a replica has"]
    assert remarks(replace(MACHINE, most_tokens=60_000, replicas=2)) == [
        "knee",
        "from here on more than 2 replicas have",
    ]


def test_what_was_not_asked_is_left_out() -> None:
    text = as_text(report())
    for absent in ("What if", "20 %", "goals", "tiers"):
        assert absent not in text
    text = as_text(report(Goals(ttft_p95=4.0)))
    assert "half the memory" in text
    assert "traffic +20 %" in text


def test_of_a_budget_alone_no_replicas_are_asked_for() -> None:
    text = as_text(report(Goals(total_tokens=100_000)))
    assert "at most 13.1 GB of KV in all" in text
    assert "traffic +20 %" in text
    assert "replicas needed" not in text
    assert "none is enough" not in text


def test_a_hit_rate_is_told_by_several_definitions() -> None:
    lines = as_text(report()).splitlines()
    at = lines.index("Hit rate with unlimited memory, by what is counted (all figures above: the first)")
    assert lines[at + 1 : at + 3] == [" 80.0 %  token: of all tokens", " 75.0 %  block: of all <blocks>"]


def test_lines_fit_a_wide_terminal() -> None:
    assert max(len(line) for line in as_text(report(Goals(ttft_p95=4.0, hit_rate=0.5))).splitlines()) <= 120


def test_what_is_assumed_comes_right_behind_the_answer() -> None:
    whole = report(Goals(ttft_p95=4.0))
    lines = as_text(replace(whole, traffic=replace(whole.traffic, assumed=("4 bytes a token",)))).splitlines()
    assert lines[1] == "assumed: 4 bytes a token"
