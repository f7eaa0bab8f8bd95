"""The engine of one replica, as far as no design chooses it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from sapwood.config import CacheConfig, SchedulerConfig
from sapwood.routing import router_for
from sapwood.sim.cost import CostModel, StepShape
from sapwood.sim.design import Case
from sapwood.sim.setup import Setup


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


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """Attributes:
    cost: how long its steps take.
    cache, scheduler: what a design leaves open of them.
    context: longest sequence that the model reads; None sets no limit.
    """

    cost: CostModel
    cache: CacheConfig = field(default_factory=CacheConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    context: int | None = None

    def at(self, speed: float) -> EngineSpec:
        """The same on hardware that is `speed` times as fast."""
        return self if speed == 1 else replace(self, cost=Faster(self.cost, speed))

    def setup(self, case: Case) -> Setup:
        """What is simulated of a case. Raises UsageError for a design that cannot be."""
        design, cost = case.design, self.at(case.speed).cost
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
        return Setup(
            design.capacity_tokens,
            cache,
            replace(self.scheduler, schedule_policy=design.schedule_policy),
            design.replicas,
            router if design.replicas > 1 else None,
            context=self.context,
        )
