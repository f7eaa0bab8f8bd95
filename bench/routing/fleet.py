"""Replicas that are nothing but their caches: the real PrefixCache, one each, behind a router. No time passes in them.

A request comes and goes at once, so nobody waits, and what is measured is where prefixes lie, no more.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from sapwood.cache import PrefixCache, Tokens
from sapwood.config import CacheConfig
from sapwood.routing import Candidate, Router, Ticket
from sapwood.sim.replay import pass_through


@dataclass(frozen=True, slots=True)
class Served:
    """What became of a request."""

    replica: int
    reused: int
    """Tokens of its prompt; the last one never is."""


@dataclass(slots=True)
class CacheFleet:
    """Attributes:
    capacity_pages: of each replica's cache.
    tells: whether replicas tell what they reused.
    down: those that are no candidates at present.
    waits: seconds that they tell; 0 without.
    """

    router: Router
    replicas: int
    capacity_pages: int
    config: CacheConfig = field(default_factory=CacheConfig)
    tells: bool = True
    down: set[int] = field(default_factory=set)
    waits: dict[int, float] = field(default_factory=dict)
    caches: dict[int, PrefixCache] = field(default_factory=dict)

    def candidates(self) -> list[Candidate]:
        there = (replica for replica in range(self.replicas) if replica not in self.down)
        page = self.config.page_size
        return [Candidate(replica, 0, 0, self.waits.get(replica, 0.0), page_tokens=page) for replica in there]

    def ask(self, ticket: Ticket, reply: Tokens, now: float) -> Served:
        """Choose, look up, store prompt and reply, for which there is room, and tell the router."""
        replica = self.router.choose(ticket, self.candidates(), now)
        stored = np.concatenate([ticket.tokens, reply])
        reused = self._serve(replica, ticket, stored, now)
        self.router.finished(ticket, replica, stored, now, reused if self.tells else None)
        return Served(replica, reused)

    def restart(self, replica: int, *, told: bool = True) -> None:
        """It comes back empty, and the router is told so or not."""
        self.caches.pop(replica, None)
        if told:
            self.router.left(replica)

    def cache(self, replica: int) -> PrefixCache:
        if replica not in self.caches:
            self.caches[replica] = PrefixCache(self.capacity_pages, self.config)
        return self.caches[replica]

    def _serve(self, replica: int, ticket: Ticket, stored: Tokens, now: float) -> int:
        return pass_through(self.cache(replica), ticket.namespace, stored, now, len(ticket.tokens) - 1)
