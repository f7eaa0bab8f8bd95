"""More users and fewer."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from sapwood.errors import UsageError
from sapwood.sim import Trace, TraceRequest
from sapwood.sim.rates import found_unbounded
from sapwood.sim.traffic import SHIFT_SECONDS, with_traffic

TURNS, SESSIONS = 3, 40


def chats() -> Trace:
    """Each session says a thing of its own, and then goes on; the last begins in the last minute of an hour."""
    rows = []
    for session in range(SESSIONS):
        for turn in range(TURNS):
            names = np.arange(turn + 1, dtype=np.int32) + 10 * session
            at = 3500.0 * session / (SESSIONS - 1) + 50.0 * turn
            rows.append(TraceRequest(at, 4 * len(names), 1, names, 4 * len(names), session))
    return Trace.of("chats", 4, rows)


TRACE = chats()


def test_twice_the_users_ask_twice_as_much_in_the_same_time_and_share_nothing() -> None:
    twice = with_traffic(TRACE, 2.0)
    assert len(twice) == 2 * len(TRACE)
    assert len(np.unique(twice.sessions)) == 2 * SESSIONS
    assert (np.diff(twice.arrivals) >= 0).all()
    assert (twice.arrivals[0], twice.arrivals[-1]) == (TRACE.arrivals[0], TRACE.arrivals[-1])
    assert found_unbounded(twice).sum() == 2 * found_unbounded(TRACE).sum()
    assert len(np.unique(twice.names)) == 2 * len(np.unique(TRACE.names))


def test_a_copied_session_keeps_its_pace_and_begins_within_a_minute() -> None:
    copy = with_traffic(TRACE, 2.0)
    copy = copy.where(copy.sessions >= SESSIONS)
    shifts = []
    for session in range(SESSIONS):
        own, other = (
            trace.arrivals[trace.sessions == at]
            for trace, at in ((TRACE, session), (copy, session + SESSIONS))
        )
        assert np.diff(other) == pytest.approx(np.diff(own))
        shifts.append(other[0] - own[0])
    assert max(np.abs(shifts)) <= SHIFT_SECONDS + 1e-9
    assert np.ptp(shifts) > SHIFT_SECONDS


@pytest.mark.parametrize("traffic", [0.2, 0.8, 1.2, 2.5])
def test_a_share_of_the_users_is_drawn_by_seed(traffic: float) -> None:
    some = with_traffic(TRACE, traffic)
    assert len(some) == pytest.approx(traffic * len(TRACE), abs=TURNS)
    assert set(Counter(some.sessions.tolist()).values()) == {TURNS}
    again, other = with_traffic(TRACE, traffic), with_traffic(TRACE, traffic, seed=1)
    assert np.array_equal(some.sessions, again.sessions)
    assert np.array_equal(some.arrivals, again.arrivals)
    assert not np.array_equal(some.sessions, other.sessions)


def test_the_rows_of_a_copy_are_those_of_the_original() -> None:
    twice = with_traffic(TRACE, 2.0)
    rows = Counter((row.prompt_tokens, tuple((row.names - row.names[0]).tolist())) for row in twice)
    assert rows == Counter(
        {
            key: 2 * count
            for key, count in Counter(
                (row.prompt_tokens, tuple((row.names - row.names[0]).tolist())) for row in TRACE
            ).items()
        }
    )


def test_names_beyond_what_can_be_told_apart_are_made_smaller() -> None:
    big = Trace.of("big", 1, [TraceRequest(0.0, 2, 0, np.array([5, 2**31 - 2], np.int32), 2, 0)])
    twice = with_traffic(big, 2.0)
    assert sorted(twice.names.tolist()) == [0, 1, 2, 3]


def test_as_many_users_are_the_trace_itself_and_none_are_none() -> None:
    assert with_traffic(TRACE, 1.0) is TRACE
    assert len(with_traffic(TRACE, 0.001)) == TURNS
    with pytest.raises(UsageError, match="must be more than 0"):
        with_traffic(TRACE, 0.0)
