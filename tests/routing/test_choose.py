"""What a router is told is checked at the border, and every router keeps the promises of `Router`."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.helpers import NOTHING, NS, idle, millisecond_per_token, ticket
from sapwood.errors import UsageError
from sapwood.routing import ROUTER_NAMES, Candidate, PrefixAware, Router, RouterName, Ticket, router_for

every_router = pytest.mark.parametrize("name", ROUTER_NAMES)


def make(name: RouterName) -> Router:
    return router_for(name, capacity_tokens=2000, prefill_seconds=millisecond_per_token, seed=3)


@pytest.mark.parametrize(
    ("running", "waiting", "wait"), [(-1, 0, 0.0), (0, -1, 0.0), (0, 0, -0.1), (0, 0, math.nan)]
)
def test_a_replica_that_tells_the_impossible_is_refused(running: int, waiting: int, wait: float) -> None:
    with pytest.raises(UsageError, match="replica 4 tells"):
        Candidate(4, running, waiting, wait)


@pytest.mark.parametrize(("capacity", "page"), [(-1, 1), (None, 0), (100, -16)])
def test_a_cache_that_cannot_be_is_refused(capacity: int | None, page: int) -> None:
    with pytest.raises(UsageError, match="replica 4 tells of a cache"):
        Candidate(4, 0, 0, 0.0, capacity_tokens=capacity, page_tokens=page)
    assert Candidate(4, 0, 0, 0.0, capacity_tokens=0).capacity_tokens == 0


def test_an_answer_below_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="expects -1 tokens"):
        ticket(1, output=-1)


def test_an_unknown_router_is_named_with_those_that_are() -> None:
    with pytest.raises(UsageError, match="no router 'best'; there are random, round-robin"):
        router_for("best", capacity_tokens=1, prefill_seconds=millisecond_per_token)  # type: ignore[arg-type]


@every_router
def test_without_replicas_the_message_says_what_to_do(name: RouterName) -> None:
    with pytest.raises(UsageError, match="hint: wait until"):
        make(name).choose(ticket(1), [], 0.0)


@every_router
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_it_chooses_a_candidate_and_the_same_one_again(name: RouterName, seed: int) -> None:
    """Two routers that are told the same choose the same, whoever comes, leaves, fails, is lost or lies."""
    draws, routers = random.Random(seed), (make(name), make(name))
    now = 0.0
    flying: list[tuple[Ticket, int]] = []
    for _ in range(40):
        now += draws.choice((0.0, 0.5, 100.0))
        candidates = drawn_candidates(draws, now)
        asked = ticket(*draws.choices(range(4), k=draws.randrange(8)), session=draws.choice((None, "a", "b")))
        if draws.random() < 0.1:
            asked = Ticket(NS, NOTHING)
        elif flying and draws.random() < 0.2:
            asked = draws.choice(flying)[0]  # a retry, while the first is still on its way
        chosen = {router.choose(asked, candidates, now) for router in routers}
        assert len(chosen) == 1
        assert chosen <= {candidate.replica for candidate in candidates}
        flying.append((asked, chosen.pop()))
        if draws.random() < 0.7:
            end_one(draws, routers, *flying.pop(draws.randrange(len(flying))), now)
        for router in routers:
            if isinstance(router, PrefixAware):
                router.shadow.check()


def drawn_candidates(draws: random.Random, now: float) -> list[Candidate]:
    return [
        Candidate(
            replica,
            draws.randrange(3),
            draws.randrange(3),
            draws.choice((0.0, 1.0, math.inf)),
            draws.choice((None, now - 1.0)),
            draws.choice((None, 100, 5000)),
            draws.choice((1, 16, 100)),
        )
        for replica in draws.sample(range(6), draws.randint(1, 6))
    ]


def end_one(
    draws: random.Random, routers: tuple[Router, Router], ended: Ticket, replica: int, now: float
) -> None:
    kind, reused = draws.randrange(6), draws.choice((None, 0, 64, -1))
    for router in routers:
        if kind == 0:
            router.failed(ended, replica, now)
        elif kind == 1:
            router.left(replica)
        elif kind == 2:
            router.expire(now - 50.0)
        elif kind == 3:
            router.finished(ended, replica, ended.tokens[:100], now, reused)
        else:
            router.finished(ended, replica, ended.tokens, now, reused)


@every_router
def test_a_stuck_replica_gets_nothing_unless_all_are_stuck(name: RouterName) -> None:
    """It has nothing running just because it is stuck: it looked the least loaded of all."""
    router = make(name)
    fleet = [Candidate(0, 0, 0, math.inf), Candidate(1, 5, 5, 9.0), Candidate(2, 6, 5, 9.0)]
    for n in range(40):
        for session in (None, str(n)):
            assert router.choose(ticket(n, session=session), fleet, 0.0) in {1, 2}
    assert router.choose(ticket(1), fleet[:1], 0.0) == 0


@pytest.mark.parametrize("name", [name for name in ROUTER_NAMES if name != "random"])
def test_requests_that_nobody_could_read_are_spread(name: RouterName) -> None:
    """RO-11: they all went to the first replica."""
    router, counts = make(name), [0, 0, 0]
    for _ in range(30):
        counts[router.choose(Ticket(NS, NOTHING), idle(0, 1, 2), 0.0)] += 1
    assert counts == [10, 10, 10]


@every_router
def test_long_prompts_with_short_answers_are_spread(name: RouterName) -> None:
    """RO-04: load was counted when the answer began. Here nobody has begun, and replicas tell nothing new."""
    router, counts = make(name), [0, 0, 0]
    stale = [Candidate(replica, 0, 0, 0.0, as_of=0.0) for replica in range(3)]
    for n in range(60):
        counts[router.choose(ticket(*range(10 * n, 10 * n + 20), session=str(n)), stale, 1.0 + n / 1000)] += 1
    assert max(counts) <= (20 if name not in ("random", "session") else 30)
