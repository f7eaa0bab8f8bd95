"""Session affinity: all turns of a session go to one replica, and few sessions move when the fleet changes.

Rendezvous hashing (Thaler and Ravishankar, "Using Name-Based Mappings to Increase Hit Rates", IEEE/ACM Transactions on
Networking 6(1), 1998): each replica draws a number from its own name and the session's, and the highest wins. A
replica that leaves gives up its own sessions alone, and one that joins takes 1/R of each other's.
"""

from __future__ import annotations

from collections.abc import Sequence

from sapwood.cache import Tokens
from sapwood.cache.chain import blake2b_128, root_hash
from sapwood.routing.choose import Candidate, Ticket, require_candidates
from sapwood.routing.spread import LeastLoaded


class SessionAffinity:
    """By namespace and session alone, whatever the load; no table is kept. Without a session: the least loaded."""

    def __init__(self) -> None:
        self._without = LeastLoaded()

    def choose(self, ticket: Ticket, candidates: Sequence[Candidate], now: float) -> int:
        require_candidates(candidates)
        if ticket.session is None:
            return self._without.choose(ticket, candidates, now)
        name = root_hash(ticket.namespace) + ticket.session.encode("utf-8", "surrogatepass")
        return max(
            (candidate.replica for candidate in candidates),
            key=lambda replica: (blake2b_128(b"%d:" % replica + name), replica),
        )

    def finished(
        self, ticket: Ticket, replica: int, stored: Tokens, now: float, reused: int | None = None
    ) -> None:
        self._without.finished(ticket, replica, stored, now, reused)

    def failed(self, ticket: Ticket, replica: int, now: float) -> None:
        self._without.failed(ticket, replica, now)

    def left(self, replica: int) -> None:
        self._without.left(replica)
