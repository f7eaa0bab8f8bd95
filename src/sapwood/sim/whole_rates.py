"""Hit rates of a whole trace beside times of a part of it: a part that begins with empty caches hits too little.

A design is simulated over the part, and its memory, as one pool, replayed over both. What the simulation falls
short of the replay over the part (requests that run at once, prefixes that routing spreads over several replicas) is
taken off the replay over the whole:

    hit rate = replayed(whole) - max(0, replayed(part) - simulated(part))
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from sapwood.config import CacheConfig, EvictionName
from sapwood.sim.curve import curves
from sapwood.sim.design import Case, Design, Judge, Outcome
from sapwood.sim.progress import Progress
from sapwood.sim.trace import Trace


@dataclass(frozen=True, slots=True)
class _Pool:
    """All that a replay depends on."""

    policy: EvictionName
    tokens: int


@dataclass(frozen=True, slots=True, eq=False)
class WholeRates:
    """A judge whose times are those of `judge`, which simulates `part`, and whose hit rates are those of `whole`."""

    judge: Judge
    whole: Trace
    part: Trace
    cache: CacheConfig
    workers: int | None = None
    progress: Progress | None = None
    _part_rates: dict[_Pool, float] = field(default_factory=dict)
    """Hit rate replayed over the part."""
    _whole_rates: dict[_Pool, float] = field(default_factory=dict)
    """The same of the whole."""

    def __call__(self, cases: list[Case]) -> list[Outcome]:
        outcomes = self.judge(cases)
        pools = {self._pool(case.design) for case in cases if case.design.prefix_index != "none"}
        self._replay(self.whole, pools - set(self._whole_rates), self._whole_rates)
        self._replay(self.part, pools - set(self._part_rates), self._part_rates)
        return [
            replace(outcome, hit_rate=self._rate(case.design, outcome))
            for case, outcome in zip(cases, outcomes, strict=True)
        ]

    def _rate(self, design: Design, outcome: Outcome) -> float:
        if design.prefix_index == "none" or outcome.refused == outcome.requests:
            return outcome.hit_rate
        pool = self._pool(design)
        return max(0.0, self._whole_rates[pool] - max(0.0, self._part_rates[pool] - outcome.hit_rate))

    def _pool(self, design: Design) -> _Pool:
        return _Pool(design.eviction_policy, max(design.total_tokens, self.whole.unit_tokens))

    def _replay(self, trace: Trace, pools: Iterable[_Pool], found: dict[_Pool, float]) -> None:
        for policy in sorted({pool.policy for pool in pools}):
            sizes = sorted(pool.tokens for pool in pools if pool.policy == policy)
            points = curves(
                trace,
                sizes,
                [policy],
                config=self.cache,
                workers=self.workers,
                progress=self.progress,
            )
            found.update((_Pool(policy, point.capacity_tokens), point.hit_rate) for point in points)
