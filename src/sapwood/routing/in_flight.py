"""What a router gave to whom: what has not ended yet, and how much of late."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import takewhile

from sapwood.routing.choose import Ticket
from sapwood.routing.coming import Coming

RECENT_SECONDS = 180.0
"""A request counts half after so long."""


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """A request that a replica was given. A ticket that was chosen for twice has two, which end one by one."""

    replica: int
    at: float
    seconds: float = 0.0
    """Of prefill that were expected of it."""
    coming: Coming | None = None
    """Its prompt, on the way; None where nobody follows prompts."""
    believed_tokens: int = 0
    """That were surely there, and that so large pages can be reused of."""
    faded_tokens: int = 0
    """Beyond these, that the replica was taken to have given up."""
    page_tokens: int = 1


@dataclass(frozen=True, slots=True)
class Sent:
    """Requests, and the seconds of prefill that were expected of them; fractions where older ones count less."""

    requests: float
    seconds: float


class _Recent:
    """What was sent, fading."""

    __slots__ = ("at", "sent")

    def __init__(self) -> None:
        self.sent = Sent(0.0, 0.0)
        self.at = 0.0

    def as_of(self, now: float) -> Sent:
        fading = math.pow(2.0, min(0.0, (self.at - now) / RECENT_SECONDS))
        return Sent(self.sent.requests * fading, self.sent.seconds * fading)


class InFlight:
    """Memory: the requests in flight, and a count for each replica."""

    def __init__(self) -> None:
        self._placements: dict[Ticket, list[Placement]] = {}
        self._by_replica: dict[int, dict[Placement, Ticket]] = {}
        """Of each, the earliest first."""
        self._recent: dict[int, _Recent] = {}

    def __len__(self) -> int:
        """Placements that have not ended."""
        return sum(len(placements) for placements in self._by_replica.values())

    def add(self, ticket: Ticket, placement: Placement) -> None:
        self._placements.setdefault(ticket, []).append(placement)
        self._by_replica.setdefault(placement.replica, {})[placement] = ticket
        recent = self._recent.setdefault(placement.replica, _Recent())
        before = recent.as_of(placement.at)
        recent.sent = Sent(before.requests + 1.0, before.seconds + placement.seconds)
        recent.at = placement.at

    def pop(self, ticket: Ticket, replica: int) -> Placement | None:
        """It has ended there: the earliest of its placements there. None if there is none, or none any more."""
        for placement in self._placements.get(ticket, ()):
            if placement.replica == replica:
                del self._by_replica[replica][placement]
                self._remove(ticket, placement)
                return placement
        return None

    def left(self, replica: int) -> None:
        """Nothing that it was given will end."""
        for placement, ticket in self._by_replica.pop(replica, {}).items():
            self._remove(ticket, placement)
        self._recent.pop(replica, None)

    def expire(self, before: float) -> list[Placement]:
        """Those placed before a moment are in flight no more."""
        expired: list[Placement] = []
        for placements in self._by_replica.values():
            old = list(takewhile(lambda each: each[0].at < before, placements.items()))
            for placement, ticket in old:
                del placements[placement]
                self._remove(ticket, placement)
                expired.append(placement)
        return expired

    def on(self, replica: int) -> int:
        """Requests in flight there."""
        return len(self._by_replica.get(replica, ()))

    def since(self, replica: int, as_of: float | None) -> Sent:
        """Of those in flight, what it was sent after a moment; None: nothing."""
        requests, seconds = 0, 0.0
        if as_of is None:
            return Sent(0, 0.0)
        for placement in reversed(self._by_replica.get(replica, {})):
            if placement.at <= as_of:
                break
            requests, seconds = requests + 1, seconds + placement.seconds
        return Sent(requests, seconds)

    def recent(self, replica: int, now: float) -> Sent:
        """What it was given of late, whether it has ended or not."""
        recent = self._recent.get(replica)
        return Sent(0.0, 0.0) if recent is None else recent.as_of(now)

    def _remove(self, ticket: Ticket, placement: Placement) -> None:
        placements = self._placements[ticket]
        placements.remove(placement)
        if not placements:
            del self._placements[ticket]
