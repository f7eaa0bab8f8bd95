"""Which of several replicas gets a request: one method per policy, costs in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sapwood.cache import Namespace, Tokens


@dataclass(frozen=True, slots=True, eq=False)
class Ticket:
    """What a router knows of a request. `session` is None where nobody said whose turn it is."""

    namespace: Namespace
    tokens: Tokens
    session: str | None = None
    expected_output: int = 0
    """Tokens."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A replica, as it last told. All that a router may not work out for itself."""

    replica: int
    running: int
    """Requests."""
    waiting: int
    wait_seconds: float
    """Until a request that is given to it now would be read, as far as it can tell."""


class Router(Protocol):
    """Chooses, and is told what became of it. All times in seconds of the caller's clock, which only rises."""

    def choose(self, ticket: Ticket, candidates: Sequence[Candidate], now: float) -> int:
        """The replica that gets it; one of the candidates. Raises UsageError if there are none."""
        ...

    def finished(self, ticket: Ticket, replica: int, stored: Tokens, now: float) -> None:
        """A request has ended there and left `stored` (prompt and reply) in its cache."""
        ...
