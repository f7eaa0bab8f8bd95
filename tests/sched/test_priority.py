"""Preemption by priority: who is pushed back for whom, and who never is (peer behaviours H 104 to 108, in pages)."""

from __future__ import annotations

from collections.abc import Set

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.cache import Lease, Namespace, PageIds, PrefixCache
from sapwood.config import CacheConfig, OrderName, SchedulerConfig
from sapwood.plan import SequenceResult, StepResult
from sapwood.sched import Scheduler, Sequence
from sapwood.types import Request, SamplingParams, SeqId, TokenLogprob

NAMESPACE = Namespace("m")


class Bench:
    """A scheduler and a model that always says 7. A prompt of `length` takes length + 1 pages while it is read."""

    def __init__(
        self,
        pool: int,
        *,
        chunk: int = 1000,
        max_running: int = 16,
        policy: OrderName = "priority",
        page_size: int = 1,
    ) -> None:
        self.cache = PrefixCache(pool, CacheConfig(page_size=page_size))
        config = SchedulerConfig(chunk, max_running, schedule_policy=policy)
        self.scheduler = Scheduler(self.cache, config)
        self.added: list[Sequence] = []

    def add(
        self, priority: int, length: int, max_tokens: int = 30, *, prompt: tuple[int, ...] | None = None
    ) -> Sequence:
        number = len(self.added) + 1
        tokens = prompt or tuple(range(1000 * number, 1000 * number + length))
        request = Request(f"r{number}", tokens, SamplingParams(max_tokens=max_tokens), priority=priority)
        sequence = Sequence(
            SeqId(number),
            request,
            NAMESPACE,
            np.array(tokens, np.int32),
            arrival=number,
            max_len=len(tokens) + max_tokens,
        )
        self.scheduler.add(sequence)
        self.added.append(sequence)
        return sequence

    def step(self) -> list[int]:
        """Who is part of it."""
        plan = self.scheduler.schedule()
        if plan is None:
            return []
        results = tuple(
            SequenceResult(work.seq, None if work.sample is None else TokenLogprob(7, 0.0))
            for work in plan.works
        )
        for outcome in self.scheduler.apply(StepResult(plan.step, results)):
            if not outcome.sequence.draws:
                self.scheduler.finish(outcome.sequence.id)
        self.cache.check()
        return [work.seq for work in plan.works]

    @property
    def running(self) -> list[int]:
        return [sequence.id for sequence in self.added if sequence.lease is not None]

    @property
    def reserved(self) -> int:
        """Pages that those who run hold."""
        return sum(len(sequence.lease.table) for sequence in self.added if sequence.lease is not None)


def three_that_fill_the_pool() -> Bench:
    """Numbers 1, 2 and 3 with priorities 0, 1 and 2 hold 51, 76 and 101 pages; none is to grow in this step."""
    bench = Bench(51 + 76 + 101)
    for priority, length in ((0, 50), (1, 75), (2, 100)):
        bench.add(priority, length)
    assert bench.step() == [1, 2, 3]
    return bench


def test_the_worst_priority_is_preempted_for_a_better_one_and_nobody_else() -> None:
    bench = three_that_fill_the_pool()
    bench.add(1, 48)
    assert bench.step() == [1, 2, 4]
    assert bench.scheduler.preemptions == 1
    assert bench.added[2].preemptions == 1
    assert bench.reserved == 51 + 76 + 49
    assert bench.scheduler.waiting == 1


def test_nobody_is_preempted_for_an_equal_or_worse_priority() -> None:
    for priority in (2, 3):
        bench = three_that_fill_the_pool()
        bench.add(priority, 20)
        assert bench.step() == [1, 2, 3]
        assert bench.scheduler.preemptions == 0


def test_nobody_is_preempted_when_all_that_may_be_would_not_suffice() -> None:
    bench = three_that_fill_the_pool()
    before = bench.cache.books()
    bench.add(1, 101)  # Takes 102; the third holds 101.
    assert bench.step() == [1, 2, 3]
    assert bench.scheduler.preemptions == 0
    assert bench.cache.books().evicted_tokens == before.evicted_tokens
    bench = three_that_fill_the_pool()
    bench.add(1, 100)
    assert 4 in bench.step()


def test_what_those_that_stay_need_to_decode_in_this_step_is_no_room() -> None:
    bench = three_that_fill_the_pool()
    bench.step()  # Now the first two have no page for the token they compute next.
    bench.add(1, 99)
    assert bench.step() == [1, 2], "100 pages beside two more would not fit into the third's 101"
    assert [s.preemptions for s in bench.added] == [0, 0, 1, 0], "it gave way to those two, not to the fourth"


def test_a_second_request_finds_nobody_left_to_preempt() -> None:
    bench = three_that_fill_the_pool()
    bench.add(1, 48)
    bench.add(1, 75)
    assert bench.step() == [1, 2, 4]
    assert bench.scheduler.preemptions == 1
    assert bench.reserved == 51 + 76 + 49


@pytest.mark.parametrize(("length", "victims"), [(74, [5]), (199, [4, 5]), (299, [3, 4, 5])])
def test_the_smallest_sufficient_set_is_preempted_the_worst_and_youngest_first(
    length: int, victims: list[int]
) -> None:
    bench = Bench(500)
    for priority in (1, 1, 2, 2, 2):
        bench.add(priority, 99)
    assert bench.step() == [1, 2, 3, 4, 5]
    bench.add(0, length)
    assert 6 in bench.step()
    assert [s.id for s in bench.added if s.preemptions] == victims


def test_one_that_turns_out_not_to_be_needed_is_spared() -> None:
    """The worst alone gives too little; the next alone gives enough."""
    bench = Bench(10 + 100)
    bench.add(1, 99)
    bench.add(2, 9)
    bench.step()
    bench.add(0, 49)
    assert bench.step() == [2, 3]
    assert [s.preemptions for s in bench.added] == [1, 0, 0]


def test_a_seat_is_made_free_too_and_of_equals_the_youngest_gives_it_up() -> None:
    bench = Bench(1000, max_running=3)
    for _ in range(3):
        bench.add(5, 20)
    bench.step()
    bench.add(4, 20)
    assert bench.step() == [1, 2, 4]
    bench.add(4, 20)
    assert sorted(bench.step()) == [1, 4, 5]
    bench.add(4, 20)
    bench.add(4, 20)
    assert bench.step() == [4, 5, 6]
    assert bench.scheduler.preemptions == 3
    assert all(s.preemptions == 0 for s in bench.added[3:])


def test_pages_that_others_hold_too_are_not_counted_as_freed() -> None:
    trunk = tuple(range(60))
    bench = Bench(61 + 11 + 11)
    bench.add(0, 0, prompt=trunk)
    bench.step()
    for tail in (100, 200):
        bench.add(1, 0, prompt=(*trunk, *range(tail, tail + 8)))
    bench.step()
    bench.add(0, 40)  # Both victims hold 70 pages each, but most are the first one's as well.
    bench.step()
    assert bench.scheduler.preemptions == 0
    bench.add(0, 0, prompt=(*trunk, *range(300, 305)))
    bench.step()
    assert 5 in bench.running
    assert bench.scheduler.preemptions == 1


def test_nobody_is_preempted_for_what_a_pin_holds_already() -> None:
    bench = Bench(400)
    pinned = tuple(range(50_000, 50_100))
    bench.add(0, 0, 1, prompt=pinned)
    bench.step()
    bench.cache.lease(NAMESPACE, np.array(pinned, np.int32))
    bench.add(5, 200)
    bench.step()
    assert bench.cache.room() == 99
    # Of its 121 tokens 100 are there, whether an own sequence reads them too or not.
    for _ in range(2):
        bench.add(0, 0, prompt=(*pinned, *range(20)))
        bench.step()
        assert bench.running[:1] == [2]
    assert bench.scheduler.preemptions == 0


@pytest.mark.parametrize("pinned", [False, True])
def test_what_only_a_victim_holds_of_a_match_is_gone_with_it_and_what_a_pin_holds_is_not(
    pinned: bool,
) -> None:
    bench = Bench(300)
    shared = tuple(range(50_000, 50_100))
    bench.add(1, 0, 1, prompt=shared)
    bench.step()
    if pinned:
        bench.cache.lease(NAMESPACE, np.array(shared, np.int32))
    bench.add(5, 0, prompt=(*shared, *range(150)))
    bench.step()
    assert bench.running == [2]
    assert bench.cache.room() == 49
    bench.add(0, 0, 20, prompt=(*shared, *range(500, 680)))
    bench.step()
    assert bench.running == [3]


def test_what_it_shares_with_a_victim_is_not_counted_twice() -> None:
    """The victim's 50 pages are the newcomer's own prefix: evicting them makes no room for it."""
    bench = Bench(50 + 50, page_size=1)
    bench.add(0, 44)
    bench.add(1, 0, prompt=tuple(range(45)))
    bench.step()
    bench.add(0, 0, prompt=(*range(45), *range(500, 520)))
    bench.step()
    assert bench.scheduler.preemptions == 0
    assert bench.running == [1, 2]


def test_a_preempted_one_waits_at_the_front_of_its_own_priority() -> None:
    bench = Bench(1000, max_running=1)
    bench.add(1, 20, max_tokens=3)
    bench.step()
    bench.add(1, 20, max_tokens=1)
    bench.add(0, 20, max_tokens=1)
    bench.add(0, 20, max_tokens=1)
    assert [bench.step() for _ in range(6)] == [[3], [4], [1], [1], [2], []]


def test_under_a_shortage_the_worst_priority_gives_way_though_it_is_the_oldest() -> None:
    bench = Bench(60)
    bench.add(2, 20)
    bench.step()
    bench.add(1, 20)
    while bench.scheduler.preemptions == 0:
        bench.step()
    assert bench.added[0].preemptions == 1
    while bench.step():
        pass
    assert [len(s) for s in bench.added] == [50, 50]


@pytest.mark.parametrize("policy", ["default", "fcfs", "lpm", "dfs-weight", "random"])
def test_other_orders_do_not_preempt_by_priority(policy: OrderName) -> None:
    bench = Bench(1000, max_running=1, policy=policy)
    bench.add(1, 20)
    bench.step()
    bench.add(0, 20)
    assert bench.step() == [1]
    assert bench.scheduler.preemptions == 0


def test_a_prompt_that_comes_many_times_with_a_better_priority_is_read_once_and_costs_one_victim() -> None:
    bench = Bench(3 * 51, chunk=60)
    for _ in range(3):
        bench.add(1, 50)
    while len(bench.running) < 3:
        bench.step()
    for _ in range(4):
        bench.add(0, 0, max_tokens=2, prompt=tuple(range(40)))
    bench.step()
    assert 4 in bench.running
    assert [s.preemptions for s in bench.added[:3]] == [0, 0, 1]
    while bench.scheduler.running:
        bench.step()
    assert sorted(s.reuse.reused for s in bench.added[3:] if s.reuse is not None) == [0, 39, 39, 39]


@given(
    arrivals=st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(1, 40), st.integers(1, 20)),
        min_size=3,
        max_size=30,
    ),
    pool=st.sampled_from([64, 100, 200]),
    page_size=st.sampled_from([1, 4]),
    chunk=st.sampled_from([5, 32, 256]),
    max_running=st.sampled_from([1, 2, 5]),
)
@settings(max_examples=100)
def test_everyone_ends_nobody_goes_twice_in_a_step_and_only_for_a_better_priority_or_for_room(
    arrivals: list[tuple[int, int, int, int]], pool: int, page_size: int, chunk: int, max_running: int
) -> None:
    bench = Bench(pool // page_size, chunk=chunk, max_running=max_running, page_size=page_size)

    def step() -> bool:
        ran = {s.id for s in bench.added if s.lease is not None}
        before = {s.id: s.preemptions for s in bench.added}
        planned = bench.step()
        for s in bench.added:
            assert s.preemptions <= before[s.id] + 1
            if s.preemptions > before[s.id]:
                assert s.id in ran
                assert s.id not in planned
        return bool(planned)

    for pause, priority, length, answer in arrivals:
        bench.add(priority, length, answer)
        for _ in range(pause):
            step()
    for _ in range(3000):
        if not step():
            break
    assert (bench.scheduler.running, bench.scheduler.waiting) == (0, 0)
    assert all(len(s) == s.max_len for s in bench.added)


class CountingCache(PrefixCache):
    asked = 0

    def freed_by(self, leases: Set[Lease]) -> PageIds:
        self.asked += 1
        return super().freed_by(leases)


@pytest.mark.parametrize("waiting", [1, 20, 200])
def test_what_preempting_would_free_is_asked_once_however_many_wait_in_vain(waiting: int) -> None:
    bench = Bench(500)
    bench.cache.__class__ = CountingCache
    assert isinstance(bench.cache, CountingCache)
    bench.add(0, 400)
    bench.add(9, 50)
    bench.step()
    for _ in range(waiting):
        bench.add(1, 300)
    bench.cache.asked = 0
    bench.step()
    assert bench.scheduler.preemptions == 0
    assert bench.cache.asked <= 2, "of nobody, and of all that are worse"


def test_nobody_preempted_frees_nothing() -> None:
    bench = three_that_fill_the_pool()
    assert len(bench.cache.freed_by(set())) == 0
