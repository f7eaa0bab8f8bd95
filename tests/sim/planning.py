"""A judge by formula: a world in which every right answer can be worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

from sapwood.sim.design import Case, Outcome
from sapwood.sim.interval import Interval

NEED = 100_000
"""Tokens that all replicas together must hold for every hit there is."""
MOST_HITS = 0.8


class FormulaJudge:
    """Hits rise with memory up to `NEED`; the first token takes the work over replicas and speed.

    `lru` hits a tenth less, `fcfs` takes half as long again, pages of 16 lose a point, other routings than `prefix`
    use one replica's share of the memory.
    """

    def __init__(self) -> None:
        self.asked: list[Case] = []

    def __call__(self, cases: list[Case]) -> list[Outcome]:
        self.asked += cases
        return [outcome_of(case) for case in cases]


def outcome_of(case: Case) -> Outcome:
    hits = hit_rate_of(case)
    seconds = 40 * (1 - hits) * case.traffic / (case.speed * case.design.replicas)
    seconds *= 1.5 if case.design.schedule_policy == "fcfs" else 1.0
    return Outcome(
        requests=100,
        refused=0,
        hit_rate=hits,
        ttft_p50=seconds / 2,
        ttft_p95=seconds,
        ttft_p99=seconds * 2,
        ttft_mean=seconds / 2,
        tpot_p50=0.01,
        tpot_p95=0.02,
        queue_p95=seconds / 4,
        busiest=1.1 if case.design.replicas > 1 else 1.0,
        seconds=100 / case.traffic,
        ttfts=tuple(seconds * k / 95 for k in range(101)),
    )


def hit_rate_of(case: Case) -> float:
    design = case.design
    if design.prefix_index == "none":
        return 0.0
    memory = design.total_tokens if design.routing == "prefix" else design.capacity_tokens
    rate = MOST_HITS * min(1.0, memory / NEED)
    rate *= 0.9 if design.eviction_policy == "lru" else 1.0
    return rate - (0.01 if design.page_size > 1 else 0.0)


def refusing(case: Case) -> Outcome:
    """Of a pool that holds no request at all."""
    del case
    return Outcome(100, 100, math.nan, math.inf, math.inf, math.inf, math.inf)


def flat_outcome_of(case: Case) -> Outcome:
    """Of a world where hits are worth no time, as in a part of a trace that begins cold; `slru` hits most."""
    design = case.design
    factor = {"default": 0.8, "slru": 1.0}.get(design.eviction_policy, 0.6)
    seconds = 8 * case.traffic / (case.speed * design.replicas)
    return replace(
        outcome_of(case), hit_rate=factor * hit_rate_of(case), ttft_p50=seconds / 2, ttft_p95=seconds
    )


def refusing_small(case: Case) -> Outcome:
    """Of a world where pools of less than 50,000 tokens refuse a tenth of the requests."""
    refused = 10 if case.design.capacity_tokens < 50_000 else 0
    return replace(outcome_of(case), refused=refused, refused_by_all=0)


def better_in_pages(case: Case) -> Outcome:
    """Of a world where pages of 16 tokens hit a tenth more, and those of 64 hardly more than single tokens."""
    factor = {16: 1.1, 64: 1.01}.get(case.design.page_size, 1.0)
    alone = replace(case, design=replace(case.design, page_size=1))
    return replace(outcome_of(alone), hit_rate=factor * hit_rate_of(alone))


def overloaded_outcome_of(case: Case) -> Outcome:
    """Of a world where it takes a dozen replicas to keep up, whatever they reuse."""
    return replace(outcome_of(case), load=11.5 * case.traffic / (case.speed * case.design.replicas))


def unsure_outcome_of(case: Case) -> Outcome:
    """Of a world where a time may as well be a fifth more or less."""
    outcome = outcome_of(case)
    around = Interval(0.8 * outcome.ttft_p95, 1.2 * outcome.ttft_p95)
    return replace(outcome, ttft_p95_between=around)
