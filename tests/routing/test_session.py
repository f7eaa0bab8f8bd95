from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from routing.helpers import NS, OTHER, idle, send, ticket
from sapwood.cache import Namespace
from sapwood.routing import SessionAffinity

SESSIONS = 1000
fleets = st.sets(st.integers(0, 1000), min_size=1, max_size=12)


def place(session: str, replicas: list[int], namespace: Namespace = NS) -> int:
    return SessionAffinity().choose(ticket(1, session=session, namespace=namespace), idle(*replicas), 0.0)


@given(replicas=fleets, session=st.text())
@settings(max_examples=40)
def test_a_session_stays_whatever_the_order_of_the_candidates_and_the_prompt(
    replicas: set[int], session: str
) -> None:
    router, there = SessionAffinity(), sorted(replicas)
    turns = [send(router, ticket(*range(turn), session=session), idle(*there)) for turn in range(3)]
    assert {*turns, place(session, there[::-1])} == {turns[0]}


@given(replicas=fleets, gone=st.integers(0, 1000), session=st.text())
@settings(max_examples=40)
def test_only_the_sessions_of_a_replica_that_leaves_move(replicas: set[int], gone: int, session: str) -> None:
    """Read backwards: one that joins takes sessions, and no other moves."""
    before = place(session, [*replicas, gone])
    assert before == gone or place(session, list(replicas)) == before


def test_one_that_joins_takes_its_share_of_the_sessions() -> None:
    moved = Counter(
        place(str(n), [0, 1, 2, 3]) for n in range(SESSIONS) if place(str(n), [0, 1, 2, 3, 4]) == 4
    )
    assert abs(sum(moved.values()) - SESSIONS / 5) < SESSIONS / 25
    assert all(abs(count - SESSIONS / 20) < SESSIONS / 40 for count in moved.values())


def test_sessions_are_spread() -> None:
    counts = Counter(place(str(n), [0, 1, 2, 3]) for n in range(SESSIONS))
    assert all(abs(count - SESSIONS / 4) < SESSIONS / 25 for count in counts.values())


def test_equal_names_of_two_tenants_are_two_sessions() -> None:
    apart = sum(place(str(n), [0, 1], NS) != place(str(n), [0, 1], OTHER) for n in range(200))
    assert 60 < apart < 140


def test_who_names_no_session_goes_to_the_least_loaded() -> None:
    router = SessionAffinity()
    assert [send(router, ticket(1), idle(0, 1, 2)) for _ in range(6)] == [0, 1, 2, 0, 1, 2]


def test_a_secret_decides_where_sessions_go_and_the_same_one_decides_the_same() -> None:
    """Without one, whoever names sessions can work out names that all go to one replica."""
    routers = [SessionAffinity(secret) for secret in (b"one", b"one", b"other", b"")]
    aimed = [str(n) for n in range(1000) if place(str(n), [0, 1, 2, 3]) == 0]
    places = [
        [router.choose(ticket(1, session=name), idle(0, 1, 2, 3), 0.0) for name in aimed]
        for router in routers
    ]
    assert places[0] == places[1] != places[2]
    assert set(places[3]) == {0}
    assert max(Counter(places[0]).values()) < len(aimed) / 3
