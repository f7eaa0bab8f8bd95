"""Which replica: pure logic over the cache. It knows no network, no thread and no clock."""

from __future__ import annotations

from sapwood.routing.block_keys import BLOCK_TOKENS, BlockKey, block_keys
from sapwood.routing.choose import Candidate, Router, Ticket
from sapwood.routing.named import ROUTER_NAMES, RouterName, router_for
from sapwood.routing.prefix import Offer, PrefixAware
from sapwood.routing.session import SessionAffinity
from sapwood.routing.shadow import Shadow
from sapwood.routing.spread import AtRandom, LeastLoaded, RoundRobin

__all__ = [
    "BLOCK_TOKENS",
    "ROUTER_NAMES",
    "AtRandom",
    "BlockKey",
    "Candidate",
    "LeastLoaded",
    "Offer",
    "PrefixAware",
    "RoundRobin",
    "Router",
    "RouterName",
    "SessionAffinity",
    "Shadow",
    "Ticket",
    "block_keys",
    "router_for",
]
