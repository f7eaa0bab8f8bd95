"""Chats whose history does not fit in memory: how much is computed again, by order and eviction.

Forty conversations, and pages for 15 % of what they say in all. The real scheduler and cache run on a virtual
clock at the speed of the default model on two cores. What counts is the prompt tokens that are computed, those
read again after a preemption included; the tokens drawn cost the same under every policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

from sapwood.config import CacheConfig, EvictionName, OrderName, SchedulerConfig

from ..document import tell
from ..rows import Goal, Measure, Row
from ..sizes import Size, sized
from ..stats import Pair, percentile
from .conversations import Chats, ChatShape, LogNormal, make_chats
from .virtual_clock import Machine, Report, Simulation

TOKENS_PER_SECOND = 500.0
POOL_SHARE = 0.15
_GOAL = Goal("ratio", "at most", 0.75)
_NOT_COMPARED = ("priority", "random")
"""Orders that are not meant to help the cache."""
_QUICK = ChatShape(
    conversations=4,
    groups=2,
    fewest_turns=2,
    most_turns=3,
    system=LogNormal(30, 0.3, 60),
    message=LogNormal(10, 0.5, 30),
    answer=LogNormal(4, 0.5, 8),
)


@dataclass(frozen=True, slots=True)
class Policies:
    order: OrderName
    eviction: EvictionName

    def __str__(self) -> str:
        return f"{self.order} + {self.eviction}"


BASELINE = Policies("fcfs", "lru")


def compared() -> Sequence[Policies]:
    """Every order with LRU and with the default eviction, but for the baseline."""
    orders: Sequence[OrderName] = [name for name in get_args(OrderName) if name not in _NOT_COMPARED]
    evictions: Sequence[EvictionName] = get_args(EvictionName)
    main = [name for name in evictions if name in ("lru", "default")]
    pairs = [Policies(order, eviction) for order in orders for eviction in main]
    return [pair for pair in pairs if pair != BASELINE]


def rows(size: Size) -> Iterator[Row]:
    seeds = sized(size, quick=(1,), normal=(1, 2, 3, 4, 5), full=tuple(range(1, 21)))
    chats = {seed: make_chats(_QUICK if size == "quick" else ChatShape(), seed) for seed in seeds}
    tell(f"cache: starved chat, {BASELINE}")
    base = {seed: run(chats[seed], BASELINE) for seed in seeds}
    for policies in compared():
        tell(f"cache: starved chat, {policies}")
        yield _row(policies, [run(chats[seed], policies) for seed in seeds], list(base.values()))


def run(chats: Chats, policies: Policies) -> Report:
    machine = Machine(
        pages=max(int(POOL_SHARE * chats.tokens), chats.longest),
        cache=CacheConfig(eviction_policy=policies.eviction),
        scheduler=SchedulerConfig(schedule_policy=policies.order, speculate="off"),
        token_seconds=1 / TOKENS_PER_SECOND,
    )
    return Simulation(machine, chats.arrivals).run()


def _row(policies: Policies, ours: Sequence[Report], base: Sequence[Report]) -> Row:
    pairs = [Pair(a.prefilled, b.prefilled) for a, b in zip(ours, base, strict=True)]
    mean = sum(pair.ratio or 0.0 for pair in pairs) / len(pairs)
    first = [seconds for report in ours for seconds in report.first_token_seconds]
    goal = _GOAL if _is_ours(policies) else None
    return Row(
        f"starved chat, {policies}",
        Measure("prompt tokens computed", "tokens", "lower", goal, counted=True),
        pairs,
        against=str(BASELINE),
        detail={
            "mean ratio": mean,
            "first token, median s": percentile(first, 0.5),
            "first token, p95 s": percentile(first, 0.95),
            "preemptions": sum(report.preemptions for report in ours),
        },
        remark=f"mean {mean:.2f}× over {len(pairs)} seeds",
    )


def _is_ours(policies: Policies) -> bool:
    default: EvictionName = CacheConfig().eviction_policy
    return policies == Policies("default", default)
