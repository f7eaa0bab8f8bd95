"""Numbers in words."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from cli.plans import MACHINE, report
from sapwood.cli import plan_words as words
from sapwood.cli.plan_report import Report
from sapwood.sim.design import Case, Design, Outcome, Row
from sapwood.sim.goals import Goals, Shortfall
from sapwood.sim.interval import Interval
from sapwood.sim.planner import Plan


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.0732, "73.2 ms"),
        (0.9994, "999 ms"),
        (1.0, "1 s"),
        (4.567, "4.57 s"),
        (599, "599 s"),
        (3600, "60 min"),
        (math.inf, "never"),
        (math.nan, "–"),
    ],
)
def test_seconds(value: float, said: str) -> None:
    assert words.seconds(value) == said


@pytest.mark.parametrize(
    ("count", "said"),
    [(512, "512"), (999.6, "1k"), (24_576, "24.6k"), (1_250_000, "1.25M"), (93_588_480, "93.6M")],
)
def test_tokens(count: float, said: str) -> None:
    assert words.tokens(count) == said


@pytest.mark.parametrize(
    ("value", "said"), [(0.0123, "12.3 MB"), (1, "1 GB"), (64.04, "64 GB"), (12_270, "12.3 TB")]
)
def test_gigabytes(value: float, said: str) -> None:
    assert words.gigabytes(value) == said


def test_goals_are_told_with_their_bounds() -> None:
    goals = Goals(ttft_p95=5.0, hit_rate=0.8, price_per_hour=20.0, total_tokens=1_000_000)
    assert words.goals(goals, MACHINE) == (
        "TTFT p95 ≤ 5 s, hit rate ≥ 80.0 %, at most 20 per hour, at most 131 GB of KV in all"
    )


def test_a_setting_is_told_where_it_matters() -> None:
    alone = words.settings(Design(1000))
    assert alone == "eviction default, order default, pages of 1 token, index radix"
    several = words.settings(Design(1000, replicas=2, page_size=16))
    assert several.endswith("pages of 16 tokens, index radix, routing prefix")
    assert words.settings(Design(1000, prefix_index="none")).startswith("no reuse")


def test_refusals_are_told() -> None:
    outcome = Outcome(10, 3, 0.5, 1.0, math.inf, math.inf, math.inf)
    assert words.outcome(outcome) == "TTFT p95 never, hit rate 50.0 %, 3 of 10 requests refused"


def test_a_load_is_told_where_it_is_known() -> None:
    outcome = Outcome(10, 0, 0.5, 1.0, 2.0, 3.0, 1.0, load=1.234)
    assert words.outcome(outcome) == "TTFT p95 2 s, hit rate 50.0 %, load 123 %"
    (short,) = Goals(ttft_p95=5.0).of_service(outcome)
    assert words.shortfall(short, MACHINE) == "falls behind, asked for 123 % of what it can compute"
    assert words.load(None) == "–"


def test_requests_that_go_unserved_are_a_shortfall() -> None:
    short = Shortfall("requests served", 12_031, 11_202)
    assert words.shortfall(short, MACHINE) == "11,202 requests can be served, not 12,031"


def test_the_answer_is_the_plan_or_the_nearest_or_the_knee() -> None:
    assert (
        words.headline(report(Goals(ttft_p95=4.0)))
        == "2 replicas with 6.55 GB of KV each: TTFT p95 4 s, hit rate 80.0 %"
    )
    missed = words.headline(report(Goals(hit_rate=0.9)))
    assert missed.startswith("No plan meets the goals. Nearest, ")
    assert missed.endswith("hit rate is 80.0 %, not 90.0 %")
    assert words.headline(report()).startswith("13.1 GB of KV reuse 76.0 % of the prompt tokens, of 80.0 %")


def answered(outcome: Outcome, goals: Goals, replicas: int = 4) -> Report:
    """A report whose answer is this, met or not."""
    row = Row(Case(Design(50_000, replicas=replicas)), outcome)
    plan = Plan(goals, row, goals.of_service(outcome), None, (row,))
    return replace(report(), goals=goals, plan=plan if goals.given else None, basis=row)


TIMED = Outcome(100, 0, 0.5, 1.0, 2.0, 3.0, 1.0, tpot_p95=0.1, timed=100, ttft_p95_between=Interval(1.5, 2.5))
BEHIND = replace(TIMED, load=1.87)


def test_an_answer_that_falls_behind_says_how_many_keep_up() -> None:
    said = "4 replicas with 6.55 GB of KV each: falls behind, asked for 187 % of what it can compute; about 8 replicas"
    budget = words.headline(answered(BEHIND, Goals(total_tokens=200_000)))
    assert budget == f"Nothing within the budget keeps up. Nearest, {said} would keep up"
    assert words.headline(answered(BEHIND, Goals(ttft_p95=5.0))).startswith(
        "No plan meets the goals. Nearest, 4"
    )
    assert words.verdict(False, BEHIND) == "falls behind"
    assert [words.verdict(meets, TIMED) for meets in (True, False)] == ["met", "missed"]
    assert {words.verdict(meets, each) for meets in (True, False) for each in (TIMED, BEHIND)} == set(
        words.VERDICTS
    )


def test_without_goals_it_begins_with_how_what_there_is_does() -> None:
    behind = words.headline(answered(BEHIND, Goals()))
    assert behind == (
        "4 replicas with 6.55 GB of KV each fall behind, about 8 replicas would keep up: TTFT p50 1 s, p95 2 s, "
        "hit rate 50.0 %, load 187 %"
    )
    ample = words.headline(answered(replace(TIMED, load=0.3), Goals()))
    assert "each: TTFT p50 1 s" in ample
    assert "load 30 %, about 2 replicas would do for the compute" in ample
    assert "would" not in words.headline(answered(replace(TIMED, load=0.3), Goals(), replicas=1))
    assert str(words.further(answered(BEHIND, Goals()))).startswith("13.1 GB of KV reuse 76.0 %")
    assert words.further(answered(BEHIND, Goals(ttft_p95=5.0))) is words.further(report()) is None


def test_how_sure_a_time_is() -> None:
    told = "TTFT p95 between 1.5 s and 2.5 s, as far as 100 requests tell"
    assert words.sureness(answered(TIMED, Goals())) == told
    assert words.sureness(answered(TIMED, Goals(ttft_p95=3.0))) == told
    assert words.sureness(answered(TIMED, Goals(ttft_p95=2.2))) == f"{told}; the goal lies within"
    few = replace(TIMED, ttft_p95_between=Interval(1.5, math.inf))
    assert "between 1.5 s and more than can be told" in str(words.sureness(answered(few, Goals())))
    assert words.sureness(report()) is None
    assert words.sureness(answered(replace(TIMED, ttft_p95=math.inf), Goals())) is None


def test_each_time_that_is_a_goal_is_told() -> None:
    goals = Goals(ttft_p50=0.5, ttft_p99=2.0, tpot_p95=0.05)
    assert words.goals(goals, MACHINE) == "TTFT p50 ≤ 500 ms, TTFT p99 ≤ 2 s, TPOT p95 ≤ 50 ms"
    told = [words.shortfall(short, MACHINE) for short in goals.of_service(TIMED)]
    assert told == [
        "TTFT p50 is 1 s, not 500 ms",
        "TTFT p99 is 3 s, not 2 s",
        "TPOT p95 is 100 ms, not 50 ms",
    ]
