"""What a plan has to reach, and by how much an outcome fails to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from sapwood.errors import UsageError
from sapwood.sim.design import Design, Outcome

GoalName = Literal[
    "requests served",
    "load",
    "TTFT p50",
    "TTFT p95",
    "TTFT p99",
    "TPOT p95",
    "hit rate",
    "price per hour",
    "memory",
]


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A goal that is not met.

    Attributes:
        wanted, got: requests, seconds, a rate of 0 to 1, money per hour or tokens, by the goal.
    """

    goal: GoalName
    wanted: float
    got: float

    @property
    def ratio(self) -> float:
        """How far off, at least 1: what one has too much, or too little, over what was wanted."""
        if self.goal in ("requests served", "hit rate"):
            return self.wanted / self.got if self.got > 0 else math.inf
        return self.got / self.wanted


@dataclass(frozen=True, slots=True)
class Goals:
    """None is no goal. Raises UsageError for one that nothing can meet.

    That nothing is refused which some design could serve goes without saying, and so does it that replicas keep up:
    whatever the times of a part of a trace are, those that fall behind have none.

    Attributes:
        ttft_p50, ttft_p95, ttft_p99: seconds to the first token, at most.
        tpot_p95: seconds per further token, at most.
        hit_rate: reused prompt tokens per prompt token, at least.
        price_per_hour: of all replicas, at most.
        total_tokens: KV memory of all replicas, at most.
    """

    ttft_p95: float | None = None
    hit_rate: float | None = None
    price_per_hour: float | None = None
    total_tokens: int | None = None
    ttft_p50: float | None = None
    ttft_p99: float | None = None
    tpot_p95: float | None = None

    def __post_init__(self) -> None:
        for goal, wanted in self.times.items():
            if not wanted > 0:
                raise UsageError(f"the goal for {goal} is {wanted:g} s; it must be more than 0")
        if self.hit_rate is not None and not 0 < self.hit_rate < 1:
            raise UsageError(
                f"the goal for the hit rate is {self.hit_rate:g}; it must be between 0 and 1",
                hint="0.8 means that 80 % of the prompt tokens are reused",
            )
        for name, value in (("price per hour", self.price_per_hour), ("memory", self.total_tokens)):
            if value is not None and not value > 0:
                raise UsageError(f"the budget is a {name} of {value:g}; it must be more than 0")

    @property
    def given(self) -> bool:
        """Whether anybody has any."""
        return self != Goals()

    @property
    def of_answers(self) -> bool:
        """Whether there is one for what is served, besides what it may cost."""
        return bool(self.times) or self.hit_rate is not None

    @property
    def times(self) -> Mapping[GoalName, float]:
        """Seconds, at most, of those that there are."""
        wanted: dict[GoalName, float | None] = {
            "TTFT p50": self.ttft_p50,
            "TTFT p95": self.ttft_p95,
            "TTFT p99": self.ttft_p99,
            "TPOT p95": self.tpot_p95,
        }
        return {goal: seconds for goal, seconds in wanted.items() if seconds is not None}

    def shortfalls(self, design: Design, outcome: Outcome, price: float | None) -> tuple[Shortfall, ...]:
        """The goals that are missed, `price` being that of a replica's hour."""
        return (*self.of_service(outcome), *self.of_budget(design, price))

    def of_service(self, outcome: Outcome) -> tuple[Shortfall, ...]:
        missed: list[Shortfall] = []
        if outcome.refused_by_all is not None:
            wanted, got = (
                max(1, outcome.requests - outcome.refused_by_all),
                outcome.requests - outcome.refused,
            )
            missed += [Shortfall("requests served", wanted, got)] if got < wanted else []
        if outcome.load is not None and outcome.overloaded:
            missed.append(Shortfall("load", 1.0, outcome.load))
        missed += self._too_long(outcome)
        if self.hit_rate is not None and not outcome.hit_rate >= self.hit_rate:
            missed.append(Shortfall("hit rate", self.hit_rate, outcome.hit_rate))
        return tuple(missed)

    def _too_long(self, outcome: Outcome) -> Iterator[Shortfall]:
        """Where no reply has two tokens there is no TPOT, and so none that is too long."""
        for goal, wanted in self.times.items():
            got = getattr(outcome, goal.lower().replace(" ", "_"))
            if got > wanted or (math.isnan(got) and goal != "TPOT p95"):
                yield Shortfall(goal, wanted, got)

    def of_budget(self, design: Design, price: float | None) -> tuple[Shortfall, ...]:
        missed: list[Shortfall] = []
        if self.price_per_hour is not None and price is not None:
            asked = design.replicas * price
            if asked > self.price_per_hour:
                missed.append(Shortfall("price per hour", self.price_per_hour, asked))
        if self.total_tokens is not None and design.total_tokens > self.total_tokens:
            missed.append(Shortfall("memory", self.total_tokens, design.total_tokens))
        return tuple(missed)
