from __future__ import annotations

from routing.helpers import ticket
from sapwood.routing.in_flight import RECENT_SECONDS, InFlight, Placement, Sent


def test_what_was_sent_since_a_replica_told_comes_on_top() -> None:
    flying = InFlight()
    for at in (1.0, 2.0, 3.0):
        flying.add(ticket(1), Placement(4, at, seconds=at))
    flying.add(ticket(1), Placement(5, 3.0, seconds=10.0))
    assert flying.since(4, 1.0) == Sent(2, 5.0)
    assert flying.since(4, 3.0) == flying.since(4, None) == flying.since(6, 0.0) == Sent(0, 0.0)


def test_what_has_ended_is_in_flight_no_more() -> None:
    flying, asked = InFlight(), ticket(1)
    flying.add(asked, Placement(4, 1.0))
    assert flying.on(4) == len(flying) == 1
    placement = flying.pop(asked)
    assert placement is not None
    assert placement.replica == 4
    assert flying.pop(asked) is None
    assert flying.on(4) == len(flying) == 0


def test_a_ticket_that_is_sent_again_is_in_flight_once() -> None:
    flying, asked = InFlight(), ticket(1)
    flying.add(asked, Placement(4, 1.0))
    flying.add(asked, Placement(5, 2.0))
    assert (len(flying), flying.on(4), flying.on(5)) == (1, 0, 1)


def test_equal_requests_are_two() -> None:
    flying = InFlight()
    flying.add(ticket(1), Placement(4, 1.0))
    flying.add(ticket(1), Placement(4, 1.0))
    assert len(flying) == 2


def test_recent_requests_fade_and_a_replica_that_left_has_none() -> None:
    flying = InFlight()
    flying.add(ticket(1), Placement(4, 0.0, seconds=8.0))
    flying.add(ticket(1), Placement(4, RECENT_SECONDS, seconds=2.0))
    assert flying.recent(4, RECENT_SECONDS) == Sent(1.5, 6.0)
    assert flying.recent(4, 3 * RECENT_SECONDS) == Sent(0.375, 1.5)
    assert flying.recent(4, 1e9) == Sent(0.0, 0.0)
    flying.left(4)
    assert flying.recent(4, RECENT_SECONDS) == Sent(0.0, 0.0)
    assert flying.on(4) == len(flying) == 0
