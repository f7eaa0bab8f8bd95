"""A judge by formula: a world in which every right answer can be worked out by hand."""

from __future__ import annotations

import math

from sapwood.sim.design import Case, Outcome

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
