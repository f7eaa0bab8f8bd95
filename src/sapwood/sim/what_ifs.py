"""What would become of a plan if one thing were different, and how the plan itself would move."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sapwood.config import EvictionName, OrderName
from sapwood.routing import ROUTER_NAMES
from sapwood.sim.design import Case, Design, Outcome, Row
from sapwood.sim.planner import Planner
from sapwood.sim.space import TRIED_PAGES

_POLICIES: tuple[EvictionName, ...] = ("default", "lru", "slru", "lfu")
_ORDERS: tuple[OrderName, ...] = ("default", "fcfs", "lpm")
_MOVES = ((0.8, 1.0), (1.2, 1.0), (1.0, 0.8), (1.0, 1.2))
"""Traffic and speed."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Attributes:
    change: in words.
    meets: whether the goals are still met.
    held: whether the hardware has the memory.
    """

    change: str
    row: Row
    meets: bool
    held: bool = True


@dataclass(frozen=True, slots=True)
class Shift:
    """The plan in a somewhat different world.

    Attributes:
        outcome: of the same design.
        replicas: the least that meet the goals, with all else as it is; None if no number does, or none is asked for.
    """

    traffic: float
    speed: float
    outcome: Outcome
    meets: bool
    replicas: int | None


def what_ifs(planner: Planner, design: Design, most_tokens: int | None = None) -> tuple[WhatIf, ...]:
    """One change each; the first row is the design as it is. Pools that hold no page are left out.

    `most_tokens` are what a replica of this hardware holds; None where any size can be had.
    """
    changed = {change: case for change, case in _changes(design) if case.design.pool_tokens}
    named = {"as planned": Case(design), **changed}
    outcomes = planner.trial.many(list(named.values()))
    return tuple(
        WhatIf(
            change,
            Row(case, outcomes[case]),
            planner.meets(case.design, outcomes[case]),
            held=most_tokens is None or case.design.capacity_tokens <= most_tokens,
        )
        for change, case in named.items()
    )


def sensitivity(planner: Planner, design: Design) -> tuple[Shift, ...]:
    """20 % more and less traffic, and hardware 20 % slower and faster than the cost model says."""
    planner.trial.many([Case(design, *move) for move in _MOVES])
    return tuple(_shift(planner, design, *move) for move in _MOVES)


def _shift(planner: Planner, design: Design, traffic: float, speed: float) -> Shift:
    outcome = planner.trial.one(design, traffic, speed)
    meets = planner.meets(design, outcome)
    replicas = planner.least_replicas(design, traffic, speed) if planner.goals.of_answers else None
    return Shift(traffic, speed, outcome, meets, replicas)


def _changes(design: Design) -> Iterator[tuple[str, Case]]:
    half = max(1, design.capacity_tokens // 2)
    yield "half the memory", Case(replace(design, capacity_tokens=half))
    yield "twice the memory", Case(replace(design, capacity_tokens=2 * design.capacity_tokens))
    if design.replicas > 1:
        yield "one replica less", Case(replace(design, replicas=design.replicas - 1))
    yield "one replica more", Case(replace(design, replicas=design.replicas + 1))
    yield from _other_choices(design)
    yield "no reuse", Case(replace(design, prefix_index="none"))
    yield "traffic × 1.5", Case(design, traffic=1.5)
    yield "traffic × 2", Case(design, traffic=2.0)


def _other_choices(design: Design) -> Iterator[tuple[str, Case]]:
    for policy in _POLICIES:
        if policy != design.eviction_policy:
            yield f"eviction {policy}", Case(replace(design, eviction_policy=policy))
    for order in _ORDERS:
        if order != design.schedule_policy:
            yield f"order {order}", Case(replace(design, schedule_policy=order))
    for size in TRIED_PAGES:
        if size != design.page_size:
            yield f"pages of {size} token" + "s" * (size > 1), Case(replace(design, page_size=size))
    yield from _blocks(design)
    for routing in reversed(ROUTER_NAMES):
        if routing != design.routing and design.replicas > 1:
            yield f"routing {routing}", Case(replace(design, routing=routing))


def _blocks(design: Design) -> Iterator[tuple[str, Case]]:
    """As vLLM has it: whole pages of 16 by their hashes, which are evicted by lru alone."""
    size = max(16, design.page_size)
    if design.prefix_index == "radix":
        changed = replace(design, prefix_index="blocks", page_size=size, eviction_policy="lru")
        yield f"index blocks, pages of {size} tokens, lru", Case(changed)
