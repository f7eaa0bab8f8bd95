"""Session affinity: all turns of a session go to one replica, and few sessions move when the fleet changes.

Rendezvous hashing (Thaler and Ravishankar, "Using Name-Based Mappings to Increase Hit Rates", IEEE/ACM Transactions on
Networking 6(1), 1998): each replica draws a number from its own name and the session's, and the highest wins. A
replica that leaves gives up its own sessions alone, and one that joins takes 1/R of each other's.
"""

from __future__ import annotations

from collections.abc import Sequence

from sapwood.cache import Tokens
from sapwood.cache.chain import blake2b_128, root_hash
from sapwood.routing.choose import Candidate, Ticket, at_work
from sapwood.routing.spread import LeastLoaded


class SessionAffinity:
    """By namespace and session alone, whatever the load; no table is kept. Without a session: the least loaded.

    `secret` goes into the draw. Without one, whoever may name sessions can work out which replica they go to, and
    send all of theirs to one. Routers beside each other need the same.
    """

    def __init__(self, secret: bytes = b"") -> None:
        self._secret = blake2b_128(secret) if secret else b""  # of one length
        self._without = LeastLoaded()

    def choose(self, ticket: Ticket, candidates: Sequence[Candidate], now: float) -> int:
        there = at_work(candidates)
        if ticket.session is None:
            return self._without.choose(ticket, there, now)
        name = self._secret + root_hash(ticket.namespace) + ticket.session.encode("utf-8", "surrogatepass")
        return max(
            (candidate.replica for candidate in there),
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

    def expire(self, before: float) -> None:
        self._without.expire(before)
