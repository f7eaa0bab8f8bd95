"""Routers that look at no prompt: at random, in turns, and to whoever has least to do."""

from __future__ import annotations

import random
from collections.abc import Sequence

from sapwood.cache import Tokens
from sapwood.routing.choose import Candidate, Ticket, at_work
from sapwood.routing.in_flight import InFlight, Placement


class Forgetful:
    """The part of a router that learns nothing from what became of its choices."""

    def finished(
        self, ticket: Ticket, replica: int, stored: Tokens, now: float, reused: int | None = None
    ) -> None:
        pass

    def failed(self, ticket: Ticket, replica: int, now: float) -> None:
        pass

    def left(self, replica: int) -> None:
        pass

    def expire(self, before: float) -> None:
        pass


class AtRandom(Forgetful):
    """Each replica with the same chance: the baseline. The same seed draws the same."""

    def __init__(self, seed: int = 0) -> None:
        self._draws = random.Random(seed)

    def choose(self, ticket: Ticket, candidates: Sequence[Candidate], now: float) -> int:  # noqa: ARG002
        return self._draws.choice(at_work(candidates)).replica


class RoundRobin(Forgetful):
    """In turns, by number; who is not there or stuck is passed over."""

    def __init__(self) -> None:
        self._last: int | None = None

    def choose(self, ticket: Ticket, candidates: Sequence[Candidate], now: float) -> int:  # noqa: ARG002
        replicas = sorted(candidate.replica for candidate in at_work(candidates))
        last = self._last
        following = [replica for replica in replicas if last is not None and replica > last]
        self._last = (following or replicas)[0]
        return self._last


class LeastLoaded:
    """The fewest requests running and waiting, what was sent since it told included.

    Among equals the shortest wait, then the fewest requests of late: an idle fleet takes turns.
    """

    def __init__(self) -> None:
        self._in_flight = InFlight()

    def choose(self, ticket: Ticket, candidates: Sequence[Candidate], now: float) -> int:
        chosen = min(at_work(candidates), key=lambda candidate: self._load(candidate, now)).replica
        self._in_flight.add(ticket, Placement(chosen, now))
        return chosen

    def _load(self, candidate: Candidate, now: float) -> tuple[float, ...]:
        replica = candidate.replica
        sent = self._in_flight.since(replica, candidate.as_of).requests
        requests = candidate.running + candidate.waiting + sent
        return (requests, candidate.wait_seconds, self._in_flight.recent(replica, now).requests, replica)

    def finished(
        self,
        ticket: Ticket,
        replica: int,
        stored: Tokens,  # noqa: ARG002
        now: float,  # noqa: ARG002
        reused: int | None = None,  # noqa: ARG002
    ) -> None:
        self._in_flight.pop(ticket, replica)

    def failed(self, ticket: Ticket, replica: int, now: float) -> None:  # noqa: ARG002
        self._in_flight.pop(ticket, replica)

    def left(self, replica: int) -> None:
        self._in_flight.left(replica)

    def expire(self, before: float) -> None:
        self._in_flight.expire(before)
