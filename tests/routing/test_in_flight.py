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
    flying, asked, placement = InFlight(), ticket(1), Placement(4, 1.0)
    flying.add(asked, placement)
    assert flying.on(4) == len(flying) == 1
    assert flying.pop(asked, 4) is placement
    assert flying.pop(asked, 4) is None
    assert flying.on(4) == len(flying) == 0


def test_of_a_ticket_that_was_chosen_for_again_each_placement_ends_by_itself() -> None:
    flying, asked, first, second = InFlight(), ticket(1), Placement(4, 1.0), Placement(5, 2.0)
    flying.add(asked, first)
    flying.add(asked, second)
    assert (len(flying), flying.on(4), flying.on(5)) == (2, 1, 1)
    assert flying.pop(asked, 6) is None
    assert flying.pop(asked, 4) is first
    assert flying.pop(asked, 4) is None
    assert (len(flying), flying.on(4), flying.on(5)) == (1, 0, 1)
    assert flying.pop(asked, 5) is second


def test_chosen_twice_for_the_same_replica_the_earlier_one_ends_first() -> None:
    flying, asked, first, second = InFlight(), ticket(1), Placement(4, 1.0), Placement(4, 2.0)
    flying.add(asked, first)
    flying.add(asked, second)
    assert flying.pop(asked, 4) is first
    assert flying.since(4, 1.5).requests == 1
    assert flying.pop(asked, 4) is second


def test_equal_requests_are_two() -> None:
    flying = InFlight()
    flying.add(ticket(1), Placement(4, 1.0))
    flying.add(ticket(1), Placement(4, 1.0))
    assert len(flying) == 2


def test_what_nobody_ended_expires() -> None:
    flying, again = InFlight(), ticket(1)
    old = [Placement(4 + n % 2, float(n)) for n in range(6)]
    for placement in old:
        flying.add(again if placement.at == 0.0 else ticket(1), placement)
    young = Placement(4, 6.0)
    flying.add(again, young)
    assert set(flying.expire(6.0)) == set(old)
    assert flying.expire(6.0) == []
    assert (len(flying), flying.on(4), flying.on(5)) == (1, 1, 0)
    assert flying.pop(again, 4) is young
    assert not flying._placements


def test_recent_requests_fade_and_a_replica_that_left_has_none() -> None:
    flying, both = InFlight(), ticket(1)
    flying.add(both, Placement(4, 0.0, seconds=8.0))
    flying.add(ticket(1), Placement(4, RECENT_SECONDS, seconds=2.0))
    flying.add(both, Placement(5, RECENT_SECONDS))
    assert flying.recent(4, RECENT_SECONDS) == Sent(1.5, 6.0)
    assert flying.recent(4, 3 * RECENT_SECONDS) == Sent(0.375, 1.5)
    assert flying.recent(4, 1e9) == Sent(0.0, 0.0)
    flying.left(4)
    assert flying.recent(4, RECENT_SECONDS) == Sent(0.0, 0.0)
    assert (flying.on(4), flying.on(5), len(flying)) == (0, 1, 1)
    assert flying.pop(both, 5) is not None
