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
        (36_000, "10 h"),
        (2.81e-05, "28.1 µs"),
        (1e300, "over a million days"),
        (math.inf, "never"),
        (math.nan, "–"),
    ],
)
def test_seconds(value: float, said: str) -> None:
    assert words.seconds(value) == said


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (512, "512"),
        (999.6, "1k"),
        (24_576, "24.6k"),
        (1_250_000, "1.25M"),
        (93_588_480, "93.6M"),
        (6.2e15, "6,200T"),
    ],
)
def test_tokens(count: float, said: str) -> None:
    assert words.tokens(count) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.0123, "12.3 MB"),
        (1, "1 GB"),
        (64.04, "64 GB"),
        (12_270, "12.3 TB"),
        (3.67e6, "3,670 TB"),
        (131e-6, "131 kB"),
    ],
)
def test_gigabytes(value: float, said: str) -> None:
    assert words.gigabytes(value) == said


def test_goals_are_told_with_their_bounds() -> None:
    goals = Goals(ttft_p95=5.0, hit_rate=0.8, price_per_hour=20.0, total_tokens=1_000_000)
    assert words.goals(goals, MACHINE) == (
        "TTFT p95 ≤ 5 s, hit rate ≥ 80.0 %, at most 20 an hour, at most 131 GB of KV in all"
    )


@pytest.mark.parametrize(
    ("goals", "said"),
    [
        (Goals(hit_rate=1e-9), "hit rate ≥ 0.0000001 %"),
        (Goals(hit_rate=0.57), "hit rate ≥ 57.0 %"),
        (Goals(ttft_p95=5.0004), "TTFT p95 ≤ 5.0004 s"),
        (Goals(ttft_p95=700.0), "TTFT p95 ≤ 700 s"),
        (Goals(price_per_hour=20.000001), "at most 20.000001 an hour"),
    ],
)
def test_a_goal_has_the_digits_that_it_was_given_with(goals: Goals, said: str) -> None:
    assert words.goals(goals, MACHINE) == said


@pytest.mark.parametrize(
    ("short", "said"),
    [
        (Shortfall("hit rate", 0.15, 0.1497), "hit rate is 14.97 %, not 15.00 %"),
        (Shortfall("TTFT p95", 5.0, 5.0004), "TTFT p95 is 5.0004 s, not 5 s"),
        (Shortfall("price per hour", 20.0, 20.0000001), "price per hour is 20.0000001, not 20"),
        (Shortfall("memory", 1_000_000, 1_000_001), "memory is 131.0721 GB, not 131.072 GB"),
        (Shortfall("load", 1.0, 1.0004), "falls behind, asked for 100.04 % of what it can compute"),
        (Shortfall("requests served", 3, 1), "1 request can be served, not 3"),
    ],
)
def test_what_misses_a_goal_is_never_rounded_to_it(short: Shortfall, said: str) -> None:
    assert words.shortfall(short, MACHINE) == said


def test_an_outcome_beside_its_goal_has_as_many_digits_as_tell_them_apart() -> None:
    outcome = Outcome(10, 0, 0.1497, 1.0, 5.0004, 6.0, 7.0)
    assert (words.hit_rate(outcome, Goals()), words.ttft_p95(outcome, Goals())) == ("15.0 %", "5 s")
    goals = Goals(hit_rate=0.15, ttft_p95=5.0)
    assert (words.hit_rate(outcome, goals), words.ttft_p95(outcome, goals)) == ("14.97 %", "5.0004 s")
    assert words.hit_rate(outcome, Goals(hit_rate=0.1497)) == "15.0 %"


def test_a_price_says_whose_money_it_is() -> None:
    plan = report(Goals(ttft_p95=4.0)).plan
    assert plan is not None
    assert words.price(plan, MACHINE) == "5 an hour (2 × 2.50), in the currency of --price"
    assert words.price(replace(plan, price_per_hour=None), MACHINE) == ""


def test_gains_have_one_unit_for_a_whole_report() -> None:
    gains = words.Gains.of(report())
    assert (gains.amount, gains.column) == ("1 GB", "points per GB")
    assert [gains.points(gain) for gain in (3.67e3, 2.81e-5, 48.41, 0.0488, 0.0)] == [
        "3,670",
        "≈ 0",
        "48.4",
        "0.0488",
        "0",
    ]


def test_gains_that_jump_are_told_of() -> None:
    shown = report()
    assert "jumps" not in words.meanings(shown)["points per GB"]
    jumping = replace(shown, curves=replace(shown.curves, gains=(0.0, 0.0, 6.9, 1.0, 0.0)))
    assert "it jumps where" in words.meanings(jumping)["points per GB"]


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
