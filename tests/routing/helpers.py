"""Small things that the tests of routing share."""

from __future__ import annotations

import numpy as np

from sapwood.cache import Namespace, Tokens
from sapwood.routing import BLOCK_TOKENS, Candidate, PrefixAware, Router, Ticket

NS = Namespace("model")
OTHER = Namespace("model", tenant="other")
NOTHING: Tokens = np.empty(0, np.int32)


def blocks(*names: int) -> Tokens:
    """A block of tokens for each name; equal names give equal blocks."""
    parts = [np.arange(name * 1000, name * 1000 + BLOCK_TOKENS) for name in names]
    return np.concatenate([NOTHING, *parts]).astype(np.int32)


def ticket(
    *names: int, namespace: Namespace = NS, session: str | None = None, own: int = 10, output: int = 0
) -> Ticket:
    """A prompt of these blocks, and of `own` tokens that fill none."""
    return Ticket(namespace, np.concatenate([blocks(*names), np.full(own, 7, np.int32)]), session, output)


def idle(*replicas: int) -> list[Candidate]:
    return [Candidate(replica, 0, 0, 0.0) for replica in replicas]


def waits(*seconds: float) -> list[Candidate]:
    """Replicas 0, 1, … with these waits."""
    return [Candidate(replica, 1, 1, wait) for replica, wait in enumerate(seconds)]


def millisecond_per_token(tokens: int, cached: int) -> float:
    return (tokens - cached) / 1000


def prefix_aware(capacity_tokens: int = 100_000) -> PrefixAware:
    return PrefixAware(capacity_tokens, millisecond_per_token)


def send(
    router: Router, asked: Ticket, replicas: list[Candidate], now: float = 0.0, reused: int | None = None
) -> int:
    """Choose, and finish at once with the prompt stored."""
    replica = router.choose(asked, replicas, now)
    router.finished(asked, replica, asked.tokens, now, reused)
    return replica
