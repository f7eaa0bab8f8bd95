"""Numbers in words."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from cli.plans import MACHINE, report
from sapwood.cli import plan_words as words
from sapwood.sim.design import Design, Outcome
from sapwood.sim.goals import Goals, Shortfall


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
        (Shortfall("load", 1.0, 1.0004), "asked for 100.04 % of what it can compute"),
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
    assert words.shortfall(short, MACHINE) == "asked for 123 % of what it can compute"
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
