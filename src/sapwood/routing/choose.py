"""Which of several replicas gets a request: what a router is told, and what it answers.

choose ──▶ (the replica reads and answers) ──▶ finished, or failed     once for each choice, with its ticket and replica
left                                           a replica is gone, or back and empty
expire                                         what was chosen so long ago will not be heard of any more
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sapwood.cache import Namespace, Tokens
from sapwood.errors import UsageError


@dataclass(frozen=True, slots=True, eq=False)
class Ticket:
    """What a router knows of a request, and by which it knows it again: two tickets are never equal.

    `session` is None where nobody said whose turn it is; `tokens` may be empty where nobody could tell them. Raises
    UsageError if it cannot be.
    """

    namespace: Namespace
    tokens: Tokens
    session: str | None = None
    expected_output: int = 0
    """Tokens, as an estimate (say a mean of late): the limit that a client set is none, and would drive its request off
    every full cache. 0 where nothing is known."""

    def __post_init__(self) -> None:
        if self.expected_output < 0:
            raise UsageError(
                f"a request expects {self.expected_output} tokens of answer; it cannot be below 0"
            )


@dataclass(frozen=True, slots=True)
class Candidate:
    """A replica, as it last told. All that a router may not work out for itself. Raises UsageError if it cannot be."""

    replica: int
    running: int
    """Requests."""
    waiting: int
    wait_seconds: float
    """Until a request that is given to it now would be read, as far as it can tell; inf if it is stuck."""
    as_of: float | None = None
    """When it told: what it was sent since comes on top. None: just now."""
    capacity_tokens: int | None = None
    """Of its cache; None: what the router was made with."""
    page_tokens: int = 1
    """Of a page of its cache: it reuses whole pages alone."""

    def __post_init__(self) -> None:
        if self.running < 0 or self.waiting < 0 or not self.wait_seconds >= 0:
            raise UsageError(
                f"replica {self.replica} tells of {self.running} running and {self.waiting} waiting requests "
                f"and a wait of {self.wait_seconds} s; none of them can be below 0"
            )
        if self.page_tokens < 1 or (self.capacity_tokens is not None and self.capacity_tokens < 0):
            raise UsageError(
                f"replica {self.replica} tells of a cache of {self.capacity_tokens} tokens in pages of "
                f"{self.page_tokens}; a page has at least 1 token, and a cache not below 0"
            )


class Router(Protocol):
    """Chooses, and is told what became of it. All times in seconds of the caller's clock, which only rises."""

    def choose(self, ticket: Ticket, candidates: Sequence[Candidate], now: float) -> int:
        """The replica that gets it; one of the candidates. Raises UsageError if there are none.

        A stuck one only if all are. A ticket may be chosen for again while it is in flight (a retry, a hedge): each
        choice ends by itself.
        """
        ...

    def finished(
        self, ticket: Ticket, replica: int, stored: Tokens, now: float, reused: int | None = None
    ) -> None:
        """A request has ended there and left `stored` (prompt and reply, as far as computed) in its cache.

        `reused` is how many prompt tokens were, if the replica told and if the request was to reuse any.
        """
        ...

    def failed(self, ticket: Ticket, replica: int, now: float) -> None:
        """A request has ended there and left nothing that one may count on.

        It may be chosen for again. Routers count no failures, so the cheapest replica may well be the one that has
        just failed: leave it out of the candidates of a retry.
        """
        ...

    def left(self, replica: int) -> None:
        """It is gone, or comes back empty: forget what it held and what it was given."""
        ...

    def expire(self, before: float) -> None:
        """What was chosen before that moment and has not ended counts as failed; what is told of it later is ignored.

        For callers that may lose sight of a request: what is in flight is kept until it ends.
        """
        ...


def require_candidates(candidates: Sequence[Candidate]) -> None:
    """Raises UsageError if there are none."""
    if not candidates:
        raise UsageError(
            "a request is to be routed and no replica is there",
            hint="wait until a replica is ready, or refuse the request",
        )


def at_work(candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Those that are not stuck; all, if all are. Raises UsageError if there are none."""
    require_candidates(candidates)
    return [candidate for candidate in candidates if candidate.wait_seconds < math.inf] or candidates
