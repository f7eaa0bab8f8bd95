"""Numbers in words."""

from __future__ import annotations

import math

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
