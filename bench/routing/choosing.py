"""How long a router takes to choose: `python -m bench.routing.choosing`.

Chats over a fleet that never waits; first the time of `choose`, then that of `finished`, each alone, in microseconds.
"""

from __future__ import annotations

import time
from statistics import median, quantiles

import numpy as np

from sapwood.cache import Namespace
from sapwood.routing import ROUTER_NAMES, Candidate, RouterName, Ticket, router_for

_SPACE = Namespace("bench")
_TURNS = 8


def measure(name: RouterName, replicas: int, prompt: int, requests: int) -> None:
    """Prints one line: chats of eight turns, each of which begins with one of ten system prompts."""
    router = router_for(name, capacity_tokens=400_000, prefill_seconds=_millisecond_per_token)
    candidates = [Candidate(replica, 0, 0, 0.0) for replica in range(replicas)]
    rng = np.random.default_rng(0)
    systems = [rng.integers(0, 50_000, prompt // 2, dtype=np.int32) for _ in range(10)]
    chats = [[systems[n % 10]] for n in range(max(1, requests // _TURNS))]
    choosing, ending = [], []
    for n in range(requests):
        chat = chats[rng.integers(len(chats))]
        chat.append(rng.integers(0, 50_000, prompt // _TURNS, dtype=np.int32))
        ticket = Ticket(_SPACE, np.concatenate(chat), str(id(chat)), 100)
        begin = time.perf_counter()
        replica = router.choose(ticket, candidates, float(n))
        chosen = time.perf_counter()
        router.finished(ticket, replica, ticket.tokens, float(n), len(ticket.tokens) - prompt // _TURNS)
        ending.append(time.perf_counter() - chosen)
        choosing.append(chosen - begin)
    slow = quantiles(choosing, n=100)[98]
    print(
        f"{name:13} {replicas:4} replicas, prompts of about {prompt:6,} tokens, {requests:6,} requests: "
        f"choose {median(choosing) * 1e6:6.0f} µs, p99 {slow * 1e6:6.0f} µs; finished {median(ending) * 1e6:5.0f} µs",
        flush=True,
    )


def _millisecond_per_token(tokens: int, cached: int) -> float:
    return (tokens - cached) / 1000


def main() -> None:
    for name in ROUTER_NAMES:
        measure(name, 4, 2_000, 2_000)
    for replicas in (1, 4, 8, 100):
        measure("prefix", replicas, 2_000, 10_000 if replicas == 100 else 2_000)
    measure("prefix", 4, 100_000, 200)


if __name__ == "__main__":
    main()
