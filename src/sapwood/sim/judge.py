"""What becomes of a design, by simulation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sapwood.config import CacheConfig, SchedulerConfig
from sapwood.routing import router_for
from sapwood.sim.cost import CostModel, StepShape
from sapwood.sim.design import Case, Outcome
from sapwood.sim.progress import Progress
from sapwood.sim.run import Run
from sapwood.sim.setup import Setup
from sapwood.sim.simulate import simulate
from sapwood.sim.trace import Trace
from sapwood.sim.workers import in_parallel


@dataclass(frozen=True, slots=True)
class Faster:
    """A cost model, `speed` times as fast."""

    cost: CostModel
    speed: float

    @property
    def name(self) -> str:
        return f"{self.cost.name}, {self.speed:g} times as fast"

    def step_seconds(self, shape: StepShape) -> float:
        return self.cost.step_seconds(shape) / self.speed

    def prefill_seconds(self, tokens: int, cached: int) -> float:
        return self.cost.prefill_seconds(tokens, cached) / self.speed


@dataclass(frozen=True, slots=True, eq=False)
class SimulatingJudge:
    """Simulates one trace on one kind of hardware; several cases at once in processes beside each other.

    Attributes:
        cache, scheduler: what a design leaves open.
        context: longest sequence that the model reads; None sets no limit.
    """

    trace: Trace
    cost: CostModel
    cache: CacheConfig = field(default_factory=CacheConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    context: int | None = None
    workers: int | None = None
    progress: Progress | None = None

    def __call__(self, cases: list[Case]) -> list[Outcome]:
        if len(cases) == 1:
            tell = self.progress
            return [
                self.outcome(cases[0], None if tell is None else lambda done: tell(f"simulating: {done}"))
            ]
        alone = replace(self, progress=None)  # what runs in a process of its own takes no callback along
        return in_parallel(
            alone.outcome, cases, workers=self.workers, progress=self.progress, what="simulating"
        )

    def outcome(self, case: Case, progress: Progress | None = None) -> Outcome:
        """Raises UsageError for a design that cannot be."""
        trace = replace(self.trace, arrivals=self.trace.arrivals / case.traffic)
        cost = self.cost if case.speed == 1 else Faster(self.cost, case.speed)
        return outcome_of(simulate(trace, self.setup(case, cost), cost, progress))

    def setup(self, case: Case, cost: CostModel) -> Setup:
        design = case.design
        cache = replace(
            self.cache,
            page_size=design.page_size,
            prefix_index=design.prefix_index,
            eviction_policy=design.eviction_policy,
        )
        router = partial(
            router_for,
            design.routing,
            capacity_tokens=design.capacity_tokens,
            prefill_seconds=cost.prefill_seconds,
        )
        scheduler = replace(self.scheduler, schedule_policy=design.schedule_policy)
        return Setup(
            design.capacity_tokens,
            cache,
            scheduler,
            design.replicas,
            router if design.replicas > 1 else None,
            context=self.context,
        )


def outcome_of(run: Run) -> Outcome:
    """Of a request that draws no token, the first is there when its prompt is read."""
    first = np.where(np.isnan(run.first_token), run.finished, run.first_token)
    ttft = np.where(run.refused, np.inf, first - run.arrival)
    p50, p95, p99 = (_percentile(ttft, share) for share in (50, 95, 99))
    computed = run.computed_tokens
    return Outcome(
        requests=len(ttft),
        refused=int(run.refused.sum()),
        hit_rate=run.hit_rate,
        ttft_p50=p50,
        ttft_p95=p95,
        ttft_p99=p99,
        ttft_mean=float(ttft.mean()) if len(ttft) else np.nan,
        tpot_p50=_percentile(run.tpot, 50),
        tpot_p95=_percentile(run.tpot, 95),
        queue_p95=_percentile(run.queueing, 95),
        busiest=float(computed.max() / computed.mean()) if computed.any() else 1.0,
        seconds=run.seconds,
        ttfts=tuple(_percentile(ttft, share) for share in range(101)) if len(ttft) else (),
    )


def _percentile(values: NDArray[np.float64], share: float) -> float:
    """Between two values where that means something; nan of none."""
    if not len(values):
        return np.nan
    method = "linear" if np.isfinite(values).all() else "higher"
    return float(np.percentile(values, share, method=method))  # type: ignore[call-overload]
