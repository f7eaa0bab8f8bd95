"""Traffic that is meant to break a router: all alike, all different, one giant, unequal speeds, lies."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from routing.helpers import NS, blocks, idle, millisecond_per_token, prefix_aware, send, ticket
from sapwood.routing import Candidate, LeastLoaded, PrefixAware, RoundRobin, Router, Ticket


class Queues:
    """Replicas that read one prompt after another, at so many tokens per millisecond, and cache all they read."""

    def __init__(self, speeds: tuple[float, ...], liars: frozenset[int] = frozenset()) -> None:
        self._speeds = speeds
        self._liars = liars
        self._free = [0.0] * len(speeds)
        self._seen: list[set[bytes]] = [set() for _ in speeds]
        self._flying: list[tuple[float, int, Ticket, int]] = []
        self._where: dict[int, int] = {}
        self.waited = 0.0
        self.counts = Counter[int]()

    def ask(self, router: Router, asked: Ticket, now: float) -> None:
        self._end(router, now)
        waits = [0.0 if n in self._liars else max(0.0, free - now) for n, free in enumerate(self._free)]
        candidates = [Candidate(replica, 0, 0, wait) for replica, wait in enumerate(waits)]
        replica = router.choose(asked, candidates, now)
        reused = self._reused(replica, asked)
        seconds = millisecond_per_token(len(asked.tokens), reused) / self._speeds[replica]
        self._free[replica] = max(now, self._free[replica]) + seconds
        self.waited += self._free[replica] - now
        self.counts[replica] += 1
        self._flying.append((self._free[replica], len(self._flying), asked, reused))
        self._where[id(asked)] = replica

    def _reused(self, replica: int, asked: Ticket) -> int:
        seen, data = self._seen[replica], asked.tokens.tobytes()
        ends = range(256, len(data) + 1, 256)
        known = sum(1 for end in ends if data[:end] in seen)
        seen.update(data[:end] for end in ends)
        return min(known * 64, len(asked.tokens) - 1)

    def _end(self, router: Router, now: float) -> None:
        for ended in sorted(each for each in self._flying if each[0] <= now):
            self._flying.remove(ended)
            _, _, asked, reused = ended
            router.finished(asked, self._where.pop(id(asked)), asked.tokens, now, reused)


def test_all_requests_alike_are_read_once_by_each_and_spread() -> None:
    router, queues = prefix_aware(), Queues((1.0,) * 4)
    for n in range(200):
        queues.ask(router, ticket(*range(10)), n / 20)
    assert max(queues.counts.values()) <= 1.5 * 50
    assert queues.waited < 4 * 0.65 * 20


def test_all_different_requests_are_as_well_off_as_under_the_least_loaded() -> None:
    waited = []
    for router in (prefix_aware(20_000), RoundRobin()):
        queues = Queues((1.0,) * 4)
        for n in range(200):
            queues.ask(router, ticket(*range(100 * n, 100 * n + 1 + n % 20)), n / 5)
        waited.append(queues.waited)
    assert waited[0] < waited[1]


def test_one_giant_prompt_holds_nobody_else_up() -> None:
    router, queues = prefix_aware(10_000), Queues((1.0,) * 3)
    giant = Ticket(NS, np.arange(60_000, dtype=np.int32) + 10**6)
    queues.ask(router, giant, 0.0)
    alone = queues.waited
    for n in range(60):
        queues.ask(router, ticket(1, 2, 300 + n), 0.5 + n / 5)
    assert alone == pytest.approx(60.0)
    assert queues.waited - alone < 60 * 0.5
    assert min(queues.counts.values()) == 1  # the one that reads it reads nothing else
    router.shadow.check()


def test_replicas_of_unequal_speeds_get_work_by_their_speed() -> None:
    """Two thirds of the capacity in one of four: a cap on requests alone would leave it idle."""
    waited = {}
    for make in (prefix_aware, RoundRobin, LeastLoaded):
        router, queues = make(), Queues((1.0, 1.0, 1.0, 6.0))
        for n in range(400):
            queues.ask(router, ticket(*range(20 * n, 20 * n + 10)), n / 9)
        waited[type(router)] = queues.waited
        if isinstance(router, PrefixAware):
            assert queues.counts[3] > 1.7 * 100
    assert waited[PrefixAware] < waited[RoundRobin] / 2
    assert waited[PrefixAware] < 1.1 * waited[LeastLoaded]  # which goes by the wait alone here


def test_a_replica_that_hides_its_queue_gets_no_more_than_the_cap() -> None:
    router, queues = prefix_aware(), Queues((0.2, 1.0, 1.0, 1.0), frozenset({0}))
    for n in range(300):
        queues.ask(router, ticket(*range(20 * n, 20 * n + 5)), n / 8)
    assert queues.counts[0] <= 1.3 * 75


def test_a_hundred_replicas_and_many_prompts_stay_within_their_memory() -> None:
    router, fleet = prefix_aware(64 * 3), idle(*range(100))
    for n in range(400):
        send(router, Ticket(NS, blocks(n % 7, *range(1000 * n, 1000 * n + 6))), fleet, n / 10)
    router.shadow.check()
    assert len(router.shadow) <= 100 * 3


def test_a_replica_that_fails_at_once_gets_no_retry_that_leaves_it_out() -> None:
    """Routers count no failures: what holds the prefix is asked again and again, unless the caller knows better."""
    router, asked = prefix_aware(), ticket(*range(10), 99)
    send(router, ticket(*range(10)), idle(0))
    failed: set[int] = set()
    for _ in range(3):
        replica = router.choose(asked, [each for each in idle(0, 1, 2) if each.replica not in failed], 1.0)
        router.failed(asked, replica, 1.0)
        failed.add(replica)
    assert failed == {0, 1, 2}
    assert router.choose(asked, idle(0, 1, 2), 1.0) == 0
    router.shadow.check()
