"""What a plan has to reach, and by how much an outcome fails to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from sapwood.errors import UsageError
from sapwood.sim.design import Design, Outcome

GoalName = Literal["requests served", "TTFT p95", "load", "hit rate", "price per hour", "memory"]


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

    That nothing is refused which some design could serve goes without saying.

    Attributes:
        ttft_p95: seconds, at most.
        hit_rate: reused prompt tokens per prompt token, at least.
        price_per_hour: of all replicas, at most.
        total_tokens: KV memory of all replicas, at most.
    """

    ttft_p95: float | None = None
    hit_rate: float | None = None
    price_per_hour: float | None = None
    total_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.ttft_p95 is not None and not self.ttft_p95 > 0:
            raise UsageError(f"the goal for TTFT is {self.ttft_p95:g} s; it must be more than 0")
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
        return self.ttft_p95 is not None or self.hit_rate is not None

    def shortfalls(self, design: Design, outcome: Outcome, price: float | None) -> tuple[Shortfall, ...]:
        """The goals that are missed, `price` being that of a replica's hour."""
        return (*self.of_service(outcome), *self.of_budget(design, price))

    def of_service(self, outcome: Outcome) -> tuple[Shortfall, ...]:
        """A time to first token is no good where replicas fall behind for as long as the trace goes on."""
        missed: list[Shortfall] = []
        if outcome.refused_by_all is not None:
            wanted, got = (
                max(1, outcome.requests - outcome.refused_by_all),
                outcome.requests - outcome.refused,
            )
            missed += [Shortfall("requests served", wanted, got)] if got < wanted else []
        if self.ttft_p95 is not None and not outcome.ttft_p95 <= self.ttft_p95:
            missed.append(Shortfall("TTFT p95", self.ttft_p95, outcome.ttft_p95))
        if self.ttft_p95 is not None and outcome.load is not None and outcome.load >= 1:
            missed.append(Shortfall("load", 1.0, outcome.load))
        if self.hit_rate is not None and not outcome.hit_rate >= self.hit_rate:
            missed.append(Shortfall("hit rate", self.hit_rate, outcome.hit_rate))
        return tuple(missed)

    def of_budget(self, design: Design, price: float | None) -> tuple[Shortfall, ...]:
        missed: list[Shortfall] = []
        if self.price_per_hour is not None and price is not None:
            asked = design.replicas * price
            if asked > self.price_per_hour:
                missed.append(Shortfall("price per hour", self.price_per_hour, asked))
        if self.total_tokens is not None and design.total_tokens > self.total_tokens:
            missed.append(Shortfall("memory", self.total_tokens, design.total_tokens))
        return tuple(missed)
