"""The orders as sort keys, and the queue that asks for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.cache import Match, Namespace, PrefixCache
from sapwood.config import OrderName, SchedulerConfig
from sapwood.errors import UsageError
from sapwood.sched import Sequence, order_for
from sapwood.sched.order import DepthFirst, Gain
from sapwood.sched.waiting import LOOKUPS, WaitingQueue
from sapwood.types import Request, SamplingParams, SeqId

NAMESPACE = Namespace("m")
NAMES: tuple[OrderName, ...] = ("default", "fcfs", "lpm", "dfs-weight", "priority", "random")
PATIENCE = 1000


@dataclass(frozen=True)
class One:
    """One that waits."""

    arrival: int
    cached: int = 0
    passed: int = 0
    priority: int = 0
    returning: bool = False
    prompt: tuple[int, ...] = (1, 2, 3)


def arranged(name: OrderName, *ones: One) -> list[int]:
    """Arrivals in the order of admission."""
    queue = WaitingQueue(PrefixCache(100), order_for(SchedulerConfig(schedule_policy=name)), PATIENCE)
    for seq, one in enumerate(ones):
        request = Request(f"r{seq}", one.prompt, SamplingParams(), priority=one.priority)
        tokens = np.array(one.prompt, np.int32)
        sequence = Sequence(SeqId(seq), request, NAMESPACE, tokens, arrival=one.arrival, max_len=50)
        (queue.put_back if one.returning else queue.add)(sequence)
    queue._look_up = lambda: None  # type: ignore[method-assign]
    for name_of in ("cached", "passed"):
        queue._table.column(name_of)[:] = [getattr(one, name_of) for one in ones]
    return [sequence.arrival for sequence in queue.in_order()]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("default", [3, 2, 1, 4]), ("fcfs", [1, 2, 3, 4]), ("lpm", [3, 2, 1, 4]), ("priority", [4, 1, 3, 2])],
)
def test_orders(name: OrderName, expected: list[int]) -> None:
    waiting = (One(1), One(2, cached=20, priority=5), One(3, cached=30, priority=1), One(4, priority=-1))
    assert arranged(name, *waiting) == expected


@pytest.mark.parametrize("name", NAMES)
def test_the_oldest_of_equals_is_first(name: OrderName) -> None:
    if name != "random":
        assert arranged(name, One(3), One(1), One(2)) == [1, 2, 3]


@pytest.mark.parametrize("name", NAMES)
def test_a_preempted_one_comes_before_all_others_but_not_before_a_better_priority(name: OrderName) -> None:
    hot, back, cold = One(1, cached=90, priority=0), One(5, priority=1, returning=True), One(2, priority=1)
    expected = [1, 5, 2] if name == "priority" else [5]
    assert arranged(name, hot, back, cold)[: len(expected)] == expected


def test_random_is_an_order_of_its_own_and_always_the_same() -> None:
    waiting = [One(arrival) for arrival in range(100)]
    found = arranged("random", *waiting)
    assert found == arranged("random", *reversed(waiting))
    assert sorted(found) == list(range(100))
    assert sum(found[i] < found[i + 1] for i in range(99)) in range(30, 70)


def test_being_passed_over_outweighs_reuse_in_the_end() -> None:
    hot = One(9, cached=200)
    assert arranged("default", One(1, passed=799), hot) == [9, 1]
    assert arranged("default", One(1, passed=800), hot) == [1, 9]


def test_who_has_lost_patience_goes_before_any_gain_the_oldest_first() -> None:
    hottest = One(9, cached=10**6, passed=999)
    assert arranged("default", hottest, One(2, passed=1000), One(1, passed=5000)) == [1, 2, 9]


@given(
    st.lists(
        st.builds(One, st.integers(0, 99), cached=st.integers(0, 9999), passed=st.integers(0, 2000)),
        max_size=20,
    )
)
def test_nobody_stands_before_an_older_one_without_patience(waiting: list[One]) -> None:
    found = arranged("default", *waiting)
    for older in waiting:
        if older.passed >= PATIENCE:
            assert all(arrival <= older.arrival for arrival in found[: found.index(older.arrival)])


def test_patience_is_at_least_a_token() -> None:
    with pytest.raises(UsageError, match="patience tokens is 0"):
        SchedulerConfig(patience_tokens=0)


def test_depth_first_runs_those_together_that_share_and_the_largest_group_first() -> None:
    """A trunk with two branches and a lone prompt; the cached part is all but the last token."""
    heavy, light = (1, 2, 3), (1, 2, 4)
    waiting = [
        One(1, 3, prompt=(*light, 50)),
        One(2, 0, prompt=(9, 9)),
        One(3, 3, prompt=(*heavy, 51)),
        One(4, 2, prompt=(7, 7, 52)),
        One(5, 2, prompt=(1, 2, 60)),
        One(6, 3, prompt=(*heavy, 53)),
    ]
    assert arranged("dfs-weight", *waiting) == [3, 6, 1, 5, 4, 2]


def test_depth_first_changes_nothing_for_those_before_one_more_in_a_long_queue() -> None:
    waiting = [One(number, 2, prompt=(number % 40, number % 3, number)) for number in range(300)]
    before = arranged("dfs-weight", *waiting[:-1])
    assert arranged("dfs-weight", *waiting) == [*before, 299]
    grouped = before[: DepthFirst.WINDOW]
    assert sorted(grouped) == list(range(DepthFirst.WINDOW))
    assert len({number % 40 for number in grouped[:4]}) == 1
    assert before[DepthFirst.WINDOW :] == list(range(DepthFirst.WINDOW, 299))


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
    queue = WaitingQueue(cache, Gain(), PATIENCE)
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
    queue = WaitingQueue(cache, order_for(SchedulerConfig(schedule_policy=name)), PATIENCE)
    queue.add(waiting_one(1))
    next(queue.in_order())
    assert cache.looked_up == []


def test_who_may_not_read_the_cache_is_not_looked_up() -> None:
    cache = CountingCache()
    queue = WaitingQueue(cache, Gain(), PATIENCE)
    queue.add(waiting_one(1, reuse=False))
    assert [s.id for s in queue.in_order()] == [1]
    assert cache.looked_up == []


def test_waiting_ones_age_by_what_later_requests_are_given_and_by_nothing_else() -> None:
    queue = WaitingQueue(CountingCache(), Gain(), PATIENCE)
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
    assert [queue.passed(sequence.id) for sequence in waiting] == [111, 11, 1]
    queue.charge([(waiting_one(1), 1000)])
    queue.charge([(waiting_one(9), 5), (waiting_one(8), 5)])
    assert [queue.passed(sequence.id) for sequence in waiting] == [121, 21, 11]


def test_preempted_ones_come_back_first_but_behind_an_older_one_without_patience() -> None:
    queue = WaitingQueue(CountingCache(), Gain(), PATIENCE)
    overdue, fresh, back = waiting_one(2), waiting_one(3), waiting_one(4)
    queue.add(overdue)
    queue.add(fresh)
    queue.put_back(back)
    assert [s.id for s in queue.in_order()] == [4, 2, 3]
    queue._table.column("passed")[0] = PATIENCE
    assert [s.id for s in queue.in_order()] == [2, 4, 3]
    queue.put_back(waiting_one(1))
    assert [s.id for s in queue.in_order()] == [1, 2, 4, 3]
    assert len(queue) == 4
    assert [queue.remove(SeqId(number)) for number in (1, 2, 2)] == [True, True, False]


@given(st.lists(st.tuples(st.sampled_from("arx"), st.integers(0, 30)), max_size=120))
def test_the_table_is_what_a_dictionary_would_be(actions: list[tuple[str, int]]) -> None:
    queue = WaitingQueue(CountingCache(), order_for(SchedulerConfig(schedule_policy="fcfs")), PATIENCE)
    expected: dict[int, int] = {}
    for action, number in actions:
        if action == "a" and number not in expected:
            queue.add(waiting_one(number))
            expected[number] = 0
        elif action == "r":
            assert queue.remove(SeqId(number)) == (expected.pop(number, None) is not None)
        else:
            queue.charge([(waiting_one(number), 3)])
            expected = {each: passed + 3 * (each < number) for each, passed in expected.items()}
        assert [sequence.id for sequence in queue.in_order()] == sorted(expected)
        assert {number: queue.passed(SeqId(number)) for number in expected} == expected
