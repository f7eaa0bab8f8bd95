from __future__ import annotations

from collections import Counter

from routing.helpers import idle, send, ticket
from sapwood.routing import AtRandom, Candidate, LeastLoaded, RoundRobin


def test_at_random_all_get_about_as_many_and_a_seed_decides() -> None:
    routers = AtRandom(1), AtRandom(1), AtRandom(2)
    drawn = [[send(router, ticket(1), idle(0, 1, 2, 3)) for _ in range(400)] for router in routers]
    assert drawn[0] == drawn[1] != drawn[2]
    assert all(70 < count < 130 for count in Counter(drawn[0]).values())


def test_turns_pass_over_who_is_not_there_and_let_in_who_comes() -> None:
    router = RoundRobin()
    fleets = [idle(2, 0, 1), idle(2, 0, 1), idle(0, 2), idle(0, 2), idle(0, 2, 3), idle(0, 2, 3), idle(5)]
    assert [send(router, ticket(1), fleet) for fleet in fleets] == [0, 1, 2, 0, 2, 3, 5]


def test_the_least_loaded_has_fewest_requests_then_the_shortest_wait() -> None:
    busy = [Candidate(0, 3, 0, 0.0), Candidate(1, 1, 1, 9.0), Candidate(2, 2, 0, 1.0)]
    assert send(LeastLoaded(), ticket(1), busy) == 2


def test_what_was_sent_since_a_replica_told_is_counted_until_it_ends() -> None:
    """RO-02: on one path it was not, and one of eight replicas got everything."""
    router = LeastLoaded()
    stale = [Candidate(replica, 0, 0, 0.0, as_of=0.0) for replica in range(4)]
    flying = [ticket(1) for _ in range(200)]
    counts = Counter(router.choose(each, stale, 1.0) for each in flying)
    assert set(counts.values()) == {50}
    first = Candidate(0, 0, 0, 0.0, as_of=0.0)
    told = Candidate(1, 40, 0, 0.0)
    assert router.choose(ticket(1), [first, told], 2.0) == 1
    router.left(0)
    assert router.choose(ticket(1), [first, told], 2.0) == 0


def test_failed_requests_are_load_no_more() -> None:
    router = LeastLoaded()
    stale = [Candidate(replica, 0, 0, 0.0, as_of=0.0) for replica in range(2)]
    flying = [(each, router.choose(each, stale, 1.0)) for each in (ticket(1), ticket(1), ticket(1))]
    for each, replica in flying:
        if replica == 0:
            router.failed(each, replica, 2.0)
    assert [router.choose(ticket(1), stale, 2.0) for _ in range(1)] == [0]


def test_a_ticket_that_was_chosen_for_again_is_load_where_it_has_not_ended() -> None:
    """Its first replica tells late that it failed: the second one still works on it."""
    router, asked = LeastLoaded(), ticket(1)
    stale = [Candidate(replica, 0, 0, 0.0, as_of=0.0) for replica in range(2)]
    assert [router.choose(asked, stale, 1.0) for _ in range(2)] == [0, 1]
    router.failed(asked, 0, 2.0)
    assert router.choose(ticket(1), [Candidate(0, 1, 0, 0.0), stale[1]], 2.0) == 0


def test_requests_that_nobody_ended_are_load_until_they_expire() -> None:
    router = LeastLoaded()
    lost, there = [Candidate(0, 0, 0, 0.0, as_of=0.0)], Candidate(1, 1, 0, 0.0)
    for now in (1.0, 2.0):
        router.choose(ticket(1), lost, now)
    assert router.choose(ticket(1), [*lost, there], 3.0) == 1
    router.expire(2.5)
    assert router.choose(ticket(1), [*lost, there], 3.0) == 0
