"""Routers by the names that people use."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from sapwood.errors import UsageError
from sapwood.routing.choose import Router
from sapwood.routing.prefix import PrefillSeconds, PrefixAware
from sapwood.routing.session import SessionAffinity
from sapwood.routing.spread import AtRandom, LeastLoaded, RoundRobin

RouterName: TypeAlias = Literal["random", "round-robin", "least-loaded", "session", "prefix"]

ROUTER_NAMES: tuple[RouterName, ...] = get_args(RouterName)


def router_for(
    name: RouterName,
    *,
    capacity_tokens: int,
    prefill_seconds: PrefillSeconds,
    seed: int = 0,
    secret: bytes = b"",
) -> Router:
    """One router for a whole fleet; it serves any number of replicas. Raises UsageError for another name.

    Args:
        capacity_tokens: of each replica's cache.
        prefill_seconds: of reading a prompt of so many tokens of which so many are cached.
        seed: of the draws at random.
        secret: of the draws of sessions (`SessionAffinity`).
    """
    if name == "random":
        return AtRandom(seed)
    if name == "round-robin":
        return RoundRobin()
    if name == "least-loaded":
        return LeastLoaded()
    if name == "session":
        return SessionAffinity(secret)
    if name == "prefix":
        return PrefixAware(capacity_tokens, prefill_seconds)
    raise UsageError(f"there is no router {name!r}; there are {', '.join(ROUTER_NAMES)}")
