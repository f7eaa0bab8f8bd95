"""What a router gave to whom: what has not ended yet, and how much of late."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sapwood.routing.block_keys import BlockKey
from sapwood.routing.choose import Ticket

RECENT_SECONDS = 180.0
"""A request counts half after so long."""


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """A request that a replica was given."""

    replica: int
    at: float
    seconds: float = 0.0
    """Of prefill that were expected of it."""
    keys: Sequence[BlockKey] = ()
    """Of its prompt."""
    believed_tokens: int = 0
    """That were surely there."""


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
        self._placements: dict[Ticket, Placement] = {}
        self._by_replica: dict[int, dict[Ticket, Placement]] = {}
        self._recent: dict[int, _Recent] = {}

    def __len__(self) -> int:
        return len(self._placements)

    def add(self, ticket: Ticket, placement: Placement) -> None:
        """A ticket that is in flight already is there no more."""
        self.pop(ticket)
        self._placements[ticket] = placement
        self._by_replica.setdefault(placement.replica, {})[ticket] = placement
        recent = self._recent.setdefault(placement.replica, _Recent())
        before = recent.as_of(placement.at)
        recent.sent = Sent(before.requests + 1.0, before.seconds + placement.seconds)
        recent.at = placement.at

    def pop(self, ticket: Ticket) -> Placement | None:
        """It has ended. None if it is not in flight, or its replica has left since."""
        placement = self._placements.pop(ticket, None)
        if placement is not None:
            del self._by_replica[placement.replica][ticket]
        return placement

    def left(self, replica: int) -> None:
        """Nothing that it was given will end."""
        for ticket in self._by_replica.pop(replica, {}):
            del self._placements[ticket]
        self._recent.pop(replica, None)

    def on(self, replica: int) -> int:
        """Requests in flight there."""
        return len(self._by_replica.get(replica, ()))

    def since(self, replica: int, as_of: float | None) -> Sent:
        """Of those in flight, what it was sent after a moment; None: nothing."""
        requests, seconds = 0, 0.0
        for placement in reversed(() if as_of is None else self._by_replica.get(replica, {}).values()):
            if as_of is None or placement.at <= as_of:
                break
            requests, seconds = requests + 1, seconds + placement.seconds
        return Sent(requests, seconds)

    def recent(self, replica: int, now: float) -> Sent:
        """What it was given of late, whether it has ended or not."""
        recent = self._recent.get(replica)
        return Sent(0.0, 0.0) if recent is None else recent.as_of(now)
