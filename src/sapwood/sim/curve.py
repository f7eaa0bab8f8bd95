"""Hit rate against capacity: every policy by replay, lru and the optimum from one pass over the trace.

A sweep is split into jobs for `workers`: a replay for each policy and capacity, and one job for all that comes from
segments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from sapwood.config import CacheConfig, EvictionName
from sapwood.errors import UsageError
from sapwood.sim.capacity import fits, units_of
from sapwood.sim.cost import CostModel
from sapwood.sim.optimum import Optimum
from sapwood.sim.rates import TOKEN, Definition
from sapwood.sim.replay import replay
from sapwood.sim.replies import with_replies
from sapwood.sim.segments import Segments
from sapwood.sim.stack import LruStack
from sapwood.sim.stored import over_trace
from sapwood.sim.trace import Trace

PolicyName: TypeAlias = str
"""An eviction policy, "blocks" (the hash index, which evicts by lru) or "optimum"."""

POLICIES: Sequence[PolicyName] = (*get_args(EvictionName), "blocks", "optimum")

_FROM_SEGMENTS = ("lru", "optimum")


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One policy at one capacity.

    Attributes:
        refused: requests longer than the cache; the optimum refuses none.
        prefill_seconds: of all prompts, each alone, given what was cached; None without a cost model.
    """

    policy: PolicyName
    capacity_tokens: int
    reused_tokens: int
    prompt_tokens: int
    refused: int
    prefill_seconds: float | None = None

    @property
    def hit_rate(self) -> float:
        """Prompt tokens reused as a share of all, 0 to 1."""
        return self.reused_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


@dataclass(frozen=True, slots=True)
class _Sweep:
    """What all jobs share."""

    config: CacheConfig
    definition: Definition
    cost: CostModel | None


@dataclass(frozen=True, slots=True)
class _Job:
    policies: Sequence[PolicyName]
    capacities: Sequence[int]


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """`matched` int64 [n] and `fitting` bool [n], those that are not refused."""

    policy: PolicyName
    capacity: int
    matched: NDArray[np.int64]
    fitting: NDArray[np.bool_]


def curves(
    trace: Trace,
    capacities: Sequence[int],
    policies: Sequence[PolicyName] = POLICIES,
    *,
    config: CacheConfig | None = None,
    definition: Definition = TOKEN,
    cost: CostModel | None = None,
    workers: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> list[CurvePoint]:
    """A point for each policy and, in it, each capacity in tokens, in the order given.

    Args:
        definition: of what counts, by tokens and with replies; replies that nobody named take room as well.
        config: what is not varied; its index, eviction policy and page size are not used (`in_pages` does pages).
        cost: can be pickled where there are several workers.
        workers, progress: see `in_parallel`.

    Raises UsageError for an unknown policy, a definition of another kind, or a capacity below one block.
    """
    if definition.weighting != "token" or not definition.replies:
        raise UsageError(
            f"a curve cannot be by '{definition.name}'", hint="curves count tokens, and caches keep replies"
        )
    for policy in policies:
        if policy not in POLICIES:
            raise UsageError(f"no policy is called {policy}", hint=f"there are {', '.join(POLICIES)}")
    for capacity in capacities:
        units_of(trace, capacity)
    jobs = _jobs(policies, capacities)
    sweep = _Sweep(config or CacheConfig(), definition, cost)
    results = over_trace(
        partial(_points, sweep=sweep), trace, jobs, workers=workers, progress=progress, what="replaying"
    )
    found = {(point.policy, point.capacity_tokens): point for result in results for point in result}
    return [found[policy, capacity] for policy in policies for capacity in capacities]


def _jobs(policies: Sequence[PolicyName], capacities: Sequence[int]) -> list[_Job]:
    together = [policy for policy in _FROM_SEGMENTS if policy in policies]
    alone = [policy for policy in dict.fromkeys(policies) if policy not in _FROM_SEGMENTS]
    # The slowest first: one that begins last would keep a core when the others have nothing left to do.
    alone.sort(key=lambda policy: policy != "blocks")
    replays = [_Job((policy,), (capacity,)) for policy in alone for capacity in capacities]
    return [*([_Job(together, capacities)] if together else []), *replays]


def _points(trace: Trace, job: _Job, sweep: _Sweep) -> list[CurvePoint]:
    stored = with_replies(trace)
    segments = Segments.of(stored) if set(job.policies) & set(_FROM_SEGMENTS) else None
    points = []
    for policy in job.policies:
        matched = _matcher(stored, policy, sweep.config, segments)
        for capacity in job.capacities:
            fitting = fits(stored, units_of(trace, capacity)) | (policy == "optimum")
            points.append(_point(trace, _Found(policy, capacity, matched(capacity), fitting), sweep))
    return points


def _matcher(
    trace: Trace, policy: PolicyName, config: CacheConfig, segments: Segments | None
) -> Callable[[int], NDArray[np.int64]]:
    if policy == "lru":
        return LruStack(trace, segments).matched
    if policy == "optimum":
        return Optimum(trace, segments).matched
    chosen = policy_config(policy, config)
    return lambda capacity: replay(trace, capacity, chosen).matched


def policy_config(policy: PolicyName, config: CacheConfig) -> CacheConfig:
    """The cache that a policy's name stands for, page size 1. Raises UsageError for the optimum, which no cache has."""
    attention = config.attention_tokens
    if policy == "blocks":
        return CacheConfig(prefix_index="blocks", attention_tokens=attention)
    for name in get_args(EvictionName):
        if name == policy:
            return CacheConfig(eviction_policy=name, attention_tokens=attention)
    raise UsageError(f"no cache evicts by {policy}")


def _point(trace: Trace, found: _Found, sweep: _Sweep) -> CurvePoint:
    reused = sweep.definition.reused_tokens(trace, found.matched)
    return CurvePoint(
        found.policy,
        found.capacity,
        int(reused.sum()),
        int(sweep.definition.prompt_tokens(trace).sum()),
        int((~found.fitting).sum()),
        None if sweep.cost is None else _prefill_seconds(sweep.cost, trace, reused),
    )


def _prefill_seconds(cost: CostModel, trace: Trace, reused: NDArray[np.int64]) -> float:
    rows = zip(trace.prompt_tokens.tolist(), reused.tolist(), strict=True)
    return sum(cost.prefill_seconds(tokens, cached) for tokens, cached in rows)
