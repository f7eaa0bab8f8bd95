"""What can be chosen, what it meets, and what came of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

from sapwood.config import EvictionName, IndexName, OrderName
from sapwood.routing import RouterName
from sapwood.sim.interval import Interval


@dataclass(frozen=True, slots=True)
class Design:
    """Everything that a plan decides. Today's caches have one tier, the hot pool.

    Attributes:
        capacity_tokens: of KV that each replica's pool holds.
        routing: by which rule requests are spread; it matters with several replicas only.
    """

    capacity_tokens: int
    replicas: int = 1
    page_size: int = 1
    prefix_index: IndexName = "radix"
    eviction_policy: EvictionName = "default"
    schedule_policy: OrderName = "default"
    routing: RouterName = "prefix"

    @property
    def total_tokens(self) -> int:
        """Over all replicas."""
        return self.capacity_tokens * self.replicas

    @property
    def pool_tokens(self) -> int:
        """Of each replica, in whole pages."""
        return self.capacity_tokens // self.page_size * self.page_size


@dataclass(frozen=True, slots=True)
class Case:
    """A design, and how far the world differs from the trace and the cost model.

    Attributes:
        traffic: so many times the users in the same time (`with_traffic`).
        speed: the hardware, so many times as fast as the cost model says.
    """

    design: Design
    traffic: float = 1.0
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of a simulation. Percentiles are over all requests; one refused never gets its token.

    Attributes:
        requests: of the trace.
        hit_rate: reused prompt tokens / prompt tokens, those of refused requests too, 0 to 1.
        refused: requests that no replica of this design could ever hold.
        refused_by_all: those of them that no design which may be chosen could hold; None: nobody asked.
        timed: so many requests the times are of; None: of all.
        ttft_p95_between: where it may as well be, as far as so many requests tell; None: nobody asked.
        ttft_p50, ttft_p95, ttft_p99, ttft_mean: seconds from arrival to the first token; infinite where it never came.
        tpot_p50, tpot_p95: seconds per further token of a reply; nan where no reply has two.
        queue_p95: seconds from arrival to the first step that worked on it.
        busiest: tokens computed, of prompts and of replies, by the busiest replica over the mean of all; 1 is even.
        load: work asked for over what all replicas can do in that time; from 1 on they fall behind; None: unknown.
        seconds: on the virtual clock, from the first arrival to the last token.
        ttfts: ascending seconds to the first token at the percentiles 0, 1, … 100.
    """

    requests: int
    refused: int
    hit_rate: float
    ttft_p50: float
    ttft_p95: float
    ttft_p99: float
    ttft_mean: float
    tpot_p50: float = math.nan
    tpot_p95: float = math.nan
    queue_p95: float = math.nan
    busiest: float = 1.0
    seconds: float = 0.0
    ttfts: tuple[float, ...] = field(default=(), repr=False)
    load: float | None = None
    refused_by_all: int | None = None
    timed: int | None = None
    ttft_p95_between: Interval | None = None

    @property
    def overloaded(self) -> bool:
        """Whether replicas fall behind for as long as the traffic goes on."""
        return self.load is not None and self.load >= 1


@dataclass(frozen=True, slots=True)
class Row:
    """What was simulated, and what it gave."""

    case: Case
    outcome: Outcome

    @property
    def design(self) -> Design:
        return self.case.design


class Judge(Protocol):
    """Tells what becomes of designs: by simulation, or in tests by a formula."""

    def __call__(self, cases: list[Case]) -> list[Outcome]:
        """One for each, in order. They may be worked out side by side."""
        ...
