"""The orders as sort keys, and the queue that asks for them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.cache import Match, Namespace, PrefixCache
from sapwood.config import OrderName, SchedulerConfig
from sapwood.errors import UsageError
from sapwood.sched import Candidate, Sequence, order_for
from sapwood.sched.order import Gain, front
from sapwood.sched.waiting import LOOKUPS, WaitingQueue
from sapwood.types import Request, SamplingParams, SeqId

NAMESPACE = Namespace("m")
NAMES: tuple[OrderName, ...] = ("default", "fcfs", "lpm", "priority", "random")


def candidate(arrival: int, *, cached: int = 0, passed: int = 0, priority: int = 0) -> Candidate:
    return Candidate(arrival, 0, cached, passed, priority)


def arranged(name: OrderName, *candidates: Candidate) -> list[int]:
    order = order_for(SchedulerConfig(schedule_policy=name, patience_tokens=1000))
    return [each.arrival for each in sorted(candidates, key=order.key)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("default", [3, 2, 1, 4]), ("fcfs", [1, 2, 3, 4]), ("lpm", [3, 2, 1, 4]), ("priority", [4, 1, 3, 2])],
)
def test_orders(name: OrderName, expected: list[int]) -> None:
    waiting = (
        candidate(1),
        candidate(2, cached=20, priority=5),
        candidate(3, cached=30, priority=1),
        candidate(4, priority=-1),
    )
    assert arranged(name, *waiting) == expected


@pytest.mark.parametrize("name", NAMES)
def test_keys_are_total(name: OrderName) -> None:
    order = order_for(SchedulerConfig(schedule_policy=name))
    keys = [order.key(Candidate(arrival, sample, 7, 0, 0)) for arrival in range(9) for sample in range(3)]
    assert len(set(keys)) == 27


def test_random_is_an_order_of_its_own_and_always_the_same() -> None:
    waiting = [candidate(arrival) for arrival in range(100)]
    found = arranged("random", *waiting)
    assert found == arranged("random", *reversed(waiting))
    assert sorted(found) == list(range(100))
    assert sum(found[i] < found[i + 1] for i in range(99)) in range(30, 70)


def test_being_passed_over_outweighs_reuse_in_the_end() -> None:
    hot = candidate(9, cached=200)
    assert arranged("default", candidate(1, passed=799), hot) == [9, 1]
    assert arranged("default", candidate(1, passed=800), hot) == [1, 9]


def test_who_has_lost_patience_goes_before_any_gain_the_oldest_first() -> None:
    hottest = candidate(9, cached=10**6, passed=999)
    assert arranged("default", hottest, candidate(2, passed=1000), candidate(1, passed=5000)) == [1, 2, 9]
    assert Gain(1000).key(candidate(4, passed=1000)) == front(4, 0)


@given(
    st.lists(
        st.builds(candidate, st.integers(0, 99), cached=st.integers(0, 9999), passed=st.integers(0, 2000))
    )
)
def test_nobody_stands_before_an_older_one_without_patience(waiting: list[Candidate]) -> None:
    order = Gain(1000)
    for older in waiting:
        if older.passed >= 1000:
            assert all(order.key(older) < order.key(each) for each in waiting if each.arrival > older.arrival)


def test_patience_is_at_least_a_token() -> None:
    with pytest.raises(UsageError, match="patience tokens is 0"):
        SchedulerConfig(patience_tokens=0)


# ---- the queue -------------------------------------------------------------------------------------------


class CountingCache(PrefixCache):
    def __init__(self) -> None:
        super().__init__(10_000)
        self.looked_up: list[int] = []

    def match(self, namespace: Namespace, tokens: np.ndarray[tuple[int], np.dtype[np.int32]]) -> Match:
        self.looked_up.append(int(tokens[0]))
        return super().match(namespace, tokens)


def waiting_one(number: int, *, arrival: int | None = None, reuse: bool = True) -> Sequence:
    prompt = (number, 1, 2, 3)
    return Sequence(
        SeqId(number),
        Request(f"r{number}", prompt, SamplingParams(), reuse=reuse),
        NAMESPACE,
        np.array(prompt, np.int32),
        arrival=number if arrival is None else arrival,
        max_len=20,
    )


@pytest.mark.parametrize("length", [1, LOOKUPS, 10 * LOOKUPS])
def test_lookups_are_bounded_whatever_the_length_and_go_round(length: int) -> None:
    cache = CountingCache()
    queue = WaitingQueue(cache, Gain(1000))
    for number in range(length):
        queue.add(waiting_one(number))
    for _ in range(10):
        cache.looked_up.clear()
        assert [s.id for s in queue.in_order()] == list(range(length))
        assert len(cache.looked_up) == min(LOOKUPS, length)
        queue.add(waiting_one(length))
        cache.looked_up.clear()
        next(queue.in_order())
        assert cache.looked_up[0] == length, "the newest is looked up first"
        assert queue.remove(SeqId(length))
    cache.looked_up.clear()
    for _ in range(-(-length // LOOKUPS)):
        next(queue.in_order())
    assert set(cache.looked_up) == set(range(length)), "in turn everyone is looked up"


@pytest.mark.parametrize("name", ["fcfs", "priority", "random"])
def test_orders_that_do_not_ask_look_nothing_up(name: OrderName) -> None:
    cache = CountingCache()
    queue = WaitingQueue(cache, order_for(SchedulerConfig(schedule_policy=name)))
    queue.add(waiting_one(1))
    next(queue.in_order())
    assert cache.looked_up == []


def test_who_may_not_read_the_cache_is_not_looked_up() -> None:
    cache = CountingCache()
    queue = WaitingQueue(cache, Gain(1000))
    queue.add(waiting_one(1, reuse=False))
    assert [s.id for s in queue.in_order()] == [1]
    assert cache.looked_up == []


def test_waiting_ones_age_by_what_later_requests_are_given_and_by_nothing_else() -> None:
    queue = WaitingQueue(CountingCache(), Gain(1000))
    waiting = [waiting_one(number) for number in (2, 4, 6)]
    for sequence in waiting:
        queue.add(sequence)
    given = [
        (waiting_one(1), 1000),
        (waiting_one(4, arrival=4), 100),
        (waiting_one(5), 10),
        (waiting_one(7), 1),
    ]
    queue.charge(given)
    assert [sequence.passed for sequence in waiting] == [111, 11, 1]
    queue.charge([(waiting_one(1), 1000)])
    queue.charge([(waiting_one(9), 5), (waiting_one(8), 5)])
    assert [sequence.passed for sequence in waiting] == [121, 21, 11]


def test_preempted_ones_come_back_first_but_behind_an_older_one_without_patience() -> None:
    queue = WaitingQueue(CountingCache(), Gain(1000))
    overdue, fresh, back = waiting_one(2), waiting_one(3), waiting_one(4)
    queue.add(overdue)
    queue.add(fresh)
    queue.put_back(back)
    assert [s.id for s in queue.in_order()] == [4, 2, 3]
    overdue.passed = 1000
    assert [s.id for s in queue.in_order()] == [2, 4, 3]
    queue.put_back(waiting_one(1))
    assert [s.id for s in queue.in_order()] == [1, 2, 4, 3]
    assert len(queue) == 4
    assert [queue.remove(SeqId(number)) for number in (1, 2, 2)] == [True, True, False]
