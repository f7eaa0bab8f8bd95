"""What a contract promises is asked to be retained: a wish, so that a promise tends to be worth something.

Priorities are low and the same for all, so that a client's own `cache_retention` may stand above or below; a longer
promise stands before a shorter one. As every wish it takes nothing from anybody: see "retention" in docs/caching.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sapwood.contract import Plan
from sapwood.server.generate import Order
from sapwood.server.ports import Built
from sapwood.types import LONGEST_SECONDS, MOST_WISHES, Request, Retain

LONGER = (3600.0, 86_400.0)
"""Seconds: a promise of as many or more has the next priority. The first is 1."""


def retaining(order: Order, request: Request, plan: Plan | None) -> Request:
    """`request`, which also asks to retain what its plan promises for a time that the client asked for."""
    if plan is None or not _retains(order.built):
        return request
    return replace(request, retain=(*request.retain, *wishes(plan))[:MOST_WISHES])


def retaining_all(order: Order, requests: Iterable[Request], plans: Sequence[Plan]) -> tuple[Request, ...]:
    """The same for each of `requests`; no plans promise nothing."""
    if not plans:
        return tuple(requests)
    pairs = zip(requests, plans, strict=True)
    return tuple(retaining(order, request, plan) for request, plan in pairs)


def wishes(plan: Plan) -> list[Retain]:
    """One for each lifetime, from the prompt's start to the last boundary that has it."""
    ends: dict[float, int] = {}
    for write in plan.writes:
        # Steps that nobody asked to keep live by their use alone, and as long as that at most.
        if write.longest is None or write.longest == write.ttl:
            ends[write.ttl] = max(write.boundary.end, ends.get(write.ttl, 0))
    return [Retain(priority_of(ttl), ttl, 0, end) for ttl, end in ends.items()]


def kept_for(built: Built, seconds: float, tokens: int) -> tuple[Retain, ...]:
    """The wish that so many tokens of a prompt stay for what is left of a time."""
    if not _retains(built):
        return ()
    seconds = min(max(seconds, 1.0), LONGEST_SECONDS)
    return (Retain(priority_of(seconds), seconds, 0, tokens),)


def _retains(built: Built) -> bool:
    """Whether the cache's index can keep one prefix longer than another."""
    return built.facts.policies.get("prefix_index") != "blocks"


def priority_of(seconds: float) -> int:
    return 1 + bisect_right(LONGER, seconds)
