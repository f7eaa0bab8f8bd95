"""No cliff at any length of the queue: what a step does is bounded, and what it chooses stays as good."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from sapwood.cache import Match, Namespace, PrefixCache
from sapwood.config import OrderName, SchedulerConfig
from sapwood.plan import SequenceResult, StepResult
from sapwood.sched import Scheduler, Sequence
from sapwood.sched.order import Gain
from sapwood.sched.waiting import LOOKUPS, WaitingQueue
from sapwood.types import Request, SamplingParams, SeqId, TokenLogprob

NAMESPACE = Namespace("m")
LENGTHS = (10, 100, 127, 129, 1000, 10_000)
POLICIES: tuple[OrderName, ...] = ("default", "fcfs", "lpm", "dfs-weight", "priority", "random")


class CountingCache(PrefixCache):
    lookups = 0

    def match(self, namespace: Namespace, tokens: np.ndarray[tuple[int], np.dtype[np.int32]]) -> Match:
        self.lookups += 1
        return super().match(namespace, tokens)


class Bench:
    """Ten prompts of 40 tokens are cached; those that wait begin with one of them, or with none, in turn."""

    def __init__(self, policy: OrderName, length: int, max_running: int = 4) -> None:
        self.cache = CountingCache(4000)
        self.scheduler = Scheduler(
            self.cache, SchedulerConfig(200, max_running, schedule_policy=policy, patience_tokens=10**9)
        )
        self.added = 0
        for trunk in range(10):
            self.add(self.trunk(trunk))
        while self.step():
            pass
        for number in range(length):
            own = (100_000 + number,) * 9
            self.add((*self.trunk(number % 10), *own) if number % 2 else own)

    def trunk(self, number: int) -> tuple[int, ...]:
        return tuple(range(1000 * number, 1000 * number + 40))

    def add(self, prompt: tuple[int, ...]) -> None:
        request = Request(f"r{self.added}", prompt, SamplingParams(max_tokens=1))
        tokens = np.array(prompt, np.int32)
        self.scheduler.add(
            Sequence(
                SeqId(self.added), request, NAMESPACE, tokens, arrival=self.added, max_len=len(prompt) + 1
            )
        )
        self.added += 1

    def step(self) -> list[Sequence]:
        """Who was read."""
        plan = self.scheduler.schedule()
        if plan is None:
            return []
        results = tuple(SequenceResult(work.seq, TokenLogprob(7, 0.0)) for work in plan.works)
        read = [outcome.sequence for outcome in self.scheduler.apply(StepResult(plan.step, results))]
        for sequence in read:
            self.scheduler.finish(sequence.id)
        self.cache.check()
        return read


@pytest.mark.parametrize("policy", POLICIES)
def test_lookups_of_a_step_are_bounded_at_any_length(policy: OrderName) -> None:
    most = []
    for length in LENGTHS:
        bench = Bench(policy, length)
        counts = []
        for _ in range(3):
            bench.cache.lookups = 0
            bench.step()
            counts.append(bench.cache.lookups)
        most.append(max(counts))
    # One round of looking up, and twice per admitted or left out one.
    assert all(count <= LOOKUPS + 2 * (LOOKUPS + 4) for count in most)
    assert most[-1] <= most[1] + 8, "a longer queue costs no more lookups than one of a hundred"


@pytest.mark.parametrize("length", LENGTHS)
def test_longest_prefix_first_still_chooses_by_prefix_in_a_long_queue(length: int) -> None:
    """Where another server falls back to the order of arrival in queues above 128."""
    bench = Bench("lpm", length)
    for _ in range(min(10, length // 8)):
        assert all(s.reuse is not None and s.reuse.reused == 40 for s in bench.step())


@pytest.mark.parametrize("length", LENGTHS)
def test_depth_first_still_runs_sharers_together_in_a_long_queue(length: int) -> None:
    bench = Bench("dfs-weight", length, max_running=1)
    trunks = [int(s.tokens[0]) for _ in range(min(20, length // 2)) for s in bench.step()]
    changes = sum(a != b for a, b in pairwise(trunks))
    groups = len(set(trunks))
    assert changes == groups - 1, "no group is left before it is done, nor come back to"
    assert length < 1000 or groups <= 4


@pytest.mark.parametrize("policy", POLICIES)
def test_all_of_a_long_queue_are_served(policy: OrderName) -> None:
    bench = Bench(policy, 600, max_running=16)
    served = 0
    while read := bench.step():
        served += len(read)
    assert served == 600


def test_requests_that_give_up_are_not_kept_however_many_come_between_two_lookups() -> None:
    queue = WaitingQueue(PrefixCache(100), Gain(), patience=10**9)
    patient: list[Sequence] = []
    left = 0
    for number in range(5000):
        request = Request(f"r{number}", (number,), SamplingParams())
        tokens = np.array(request.prompt, np.int32)
        sequence = Sequence(SeqId(number), request, NAMESPACE, tokens, arrival=number, max_len=2)
        queue.add(sequence)
        patient.append(sequence)
        if len(patient) > 2 * LOOKUPS:
            left += queue.remove(patient.pop(0).id)
        if number % LOOKUPS == 0:
            list(queue.in_order())
    assert left > 4000
    assert len(queue._round) <= 3 * len(queue) + LOOKUPS
