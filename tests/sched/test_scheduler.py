"""The scheduler alone: plans are read and answered by hand, on the real cache."""

from __future__ import annotations

import numpy as np
import pytest

from sapwood.cache import Namespace, PrefixCache
from sapwood.config import CacheConfig, OrderName, SchedulerConfig
from sapwood.plan import SequenceResult, StepPlan, StepResult
from sapwood.sched import Admitted, Outcome, Refused, Scheduler, Sequence
from sapwood.types import Request, SamplingParams, SeqId, TokenLogprob

NAMESPACE = Namespace("m")


class Bench:
    """A scheduler, a cache, and a model that always says 7."""

    def __init__(
        self,
        pool: int = 1000,
        *,
        chunk: int = 32,
        max_running: int = 8,
        policy: OrderName = "fcfs",
        page_size: int = 1,
        patience: int = 10**6,
    ) -> None:
        self.cache = PrefixCache(pool // page_size, CacheConfig(page_size=page_size))
        config = SchedulerConfig(chunk, max_running, schedule_policy=policy, patience_tokens=patience)
        self.scheduler = Scheduler(self.cache, config)
        self.added = 0

    def add(
        self,
        prompt: range | tuple[int, ...],
        max_tokens: int = 4,
        params: SamplingParams | None = None,
        *,
        reuse: bool = True,
    ) -> Sequence:
        self.added += 1
        params = params or SamplingParams(max_tokens=max_tokens)
        request = Request(f"r{self.added}", tuple(prompt), params, reuse=reuse)
        sequence = Sequence(
            SeqId(self.added),
            request,
            NAMESPACE,
            np.array(prompt, dtype=np.int32),
            arrival=self.added,
            max_len=len(prompt) + max_tokens,
        )
        self.scheduler.add(sequence)
        return sequence

    def plan(self) -> dict[int, tuple[int, int]]:
        """Schedule, run and apply one step; (start, tokens) per sequence id, in the plan's order."""
        plan = self.scheduler.schedule()
        if plan is None:
            return {}
        self.apply(plan)
        return {work.seq: (work.start, len(work.tokens)) for work in plan.works}

    def apply(self, plan: StepPlan, failing: SeqId | None = None) -> list[Outcome]:
        assert all(len(work.tokens) > 0 for work in plan.works)
        results = tuple(
            SequenceResult(
                work.seq,
                None if work.sample is None else TokenLogprob(7, 0.0),
                error="failed" if work.seq == failing else None,
            )
            for work in plan.works
        )
        outcomes = self.scheduler.apply(StepResult(plan.step, results))
        for outcome in outcomes:
            if outcome.error is None and not outcome.sequence.draws:
                self.scheduler.finish(outcome.sequence.id)
        self.cache.check()
        return outcomes

    def drain(self) -> None:
        for _ in range(10_000):
            if not self.plan():
                return
        raise AssertionError("never idle")


def test_nothing_to_do_is_no_plan() -> None:
    assert Bench().scheduler.schedule() is None


def test_a_prompt_is_read_in_chunks_then_decoded() -> None:
    bench = Bench(chunk=32)
    bench.add(range(70), max_tokens=3)
    assert [bench.plan() for _ in range(6)] == [
        {1: (0, 32)},
        {1: (32, 32)},
        {1: (64, 6)},
        {1: (70, 1)},
        {1: (71, 1)},
        {},
    ]
    # The last token drawn was never fed: its KV does not exist and is not in the tree.
    tokens = np.array([*range(70), 7, 7, 7, 1], dtype=np.int32)
    assert bench.cache.match(NAMESPACE, tokens).tokens == 72


def test_budget_goes_to_decoding_then_reading_then_admission() -> None:
    bench = Bench(chunk=32)
    bench.add(range(10), max_tokens=9)
    bench.plan()
    bench.add(range(100, 150))
    assert bench.plan() == {1: (10, 1), 2: (0, 31)}
    bench.add(range(200, 250))
    assert bench.plan() == {1: (11, 1), 2: (31, 19), 3: (0, 12)}


def test_a_budget_that_decoding_uses_up_admits_nobody() -> None:
    bench = Bench(chunk=2)
    for start in (0, 100):
        bench.add(range(start, start + 1), max_tokens=5)
    bench.plan()
    bench.add(range(200, 210))
    assert bench.plan() == {1: (1, 1), 2: (1, 1)}
    assert bench.scheduler.waiting == 1
    bench.drain()
    assert (bench.scheduler.running, bench.scheduler.waiting) == (0, 0)


def test_max_running_is_kept() -> None:
    bench = Bench(max_running=2)
    for start in range(0, 50, 10):
        bench.add(range(start, start + 5), max_tokens=2)
    assert list(bench.plan()) == [1, 2]
    assert list(bench.plan()) == [1, 2]
    assert list(bench.plan()) == [3, 4]


def test_work_carries_pages_history_and_ban() -> None:
    bench = Bench(page_size=4, chunk=6)
    params = SamplingParams(max_tokens=3, min_tokens=2)
    sequence = bench.add(range(10), max_tokens=3, params=params)
    sequence.end_tokens = (2, 3)
    plan = bench.scheduler.schedule()
    assert plan is not None
    assert plan.tokens == 6
    (work,) = plan.works
    assert (len(work.pages), work.sample) == (2, None)
    bench.apply(plan)
    plan = bench.scheduler.schedule()
    assert plan is not None
    (work,) = plan.works
    assert (work.start, work.tokens.tolist(), len(work.pages)) == (6, [6, 7, 8, 9], 3)
    assert work.sample is not None
    assert work.sample.history.tolist() == list(range(10))
    assert work.sample.banned == (2, 3)
    bench.apply(plan)
    assert work.sample.history.tolist() == list(range(10)), "a plan's view must not see later tokens"
    bench.plan()
    plan = bench.scheduler.schedule()
    assert plan is not None
    assert plan.works[0].sample is not None
    assert plan.works[0].sample.banned == ()


def test_followers_read_what_a_step_committed() -> None:
    bench = Bench(chunk=32)
    bench.add(range(64), max_tokens=2)
    bench.plan()
    follower = bench.add((*range(48), 900, 901))
    bench.plan()
    assert bench.plan()[2] == (48, 2)
    assert follower.reuse is not None
    assert (follower.reuse.reused, dict(follower.reuse.missed)) == (48, {"diverged": 1, "last_token": 1})


# ---- order -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "first"), [("fcfs", [2, 3, 4]), ("lpm", [4, 3, 2]), ("default", [4, 3, 2])]
)
def test_policies(policy: OrderName, first: list[int]) -> None:
    bench = Bench(policy=policy, max_running=1)
    bench.add(range(50), max_tokens=1)
    bench.drain()
    bench.add(range(500, 510), max_tokens=1)
    bench.add((*range(20), 800), max_tokens=1)
    bench.add((*range(40), 800), max_tokens=1)
    assert [next(iter(bench.plan())) for _ in range(3)] == first


def test_longest_prefix_breaks_ties_by_arrival() -> None:
    bench = Bench(policy="lpm", max_running=1)
    for start in (300, 100, 200):
        bench.add(range(start, start + 9), max_tokens=1)
    assert [next(iter(bench.plan())) for _ in range(3)] == [1, 2, 3]


# ---- room ------------------------------------------------------------------------------------------------


def test_admission_wants_the_whole_prompt_and_a_token_more() -> None:
    bench = Bench(pool=50, chunk=100)
    bench.add(range(30), max_tokens=3)
    bench.add(range(100, 120), max_tokens=3)  # 20 + 1 do not fit beside 30 + 1.
    assert list(bench.plan()) == [1]
    bench.drain()
    assert bench.scheduler.preemptions == 0


def test_one_that_does_not_fit_is_passed_by_those_that_do_until_its_patience_ends() -> None:
    bench = Bench(pool=50, chunk=100, patience=40)
    bench.add(range(30), max_tokens=20)
    bench.plan()
    heavy = bench.add(range(100, 130), max_tokens=3)
    passed_by = 0
    for number in range(40):
        bench.add((200 + number,) * 5, max_tokens=1)
        passing = [seq for seq in bench.plan() if seq > heavy.id]
        if heavy.lease is not None:
            break
        passed_by += len(passing)
    assert passed_by == 8, "as many as the patience has room for, of five tokens each"
    assert heavy.lease is not None


def test_a_step_looks_at_a_bounded_number_of_those_that_do_not_fit() -> None:
    bench = Bench(pool=50, chunk=100)
    bench.add(range(30), max_tokens=20)
    bench.plan()
    for number in range(64):
        bench.add((200 + number,) * 30)
    bench.add((900,) * 5)
    assert list(bench.plan()) == [1]
    bench.scheduler.abort(SeqId(2))
    assert list(bench.plan()) == [1, 66]


def test_a_prompt_that_fills_the_pool_is_admitted_over_what_is_only_remembered() -> None:
    bench = Bench(pool=50, chunk=100)
    bench.add(range(50), max_tokens=1)
    bench.drain()
    bench.add((*range(20), *range(100, 130)), max_tokens=1)
    assert bench.plan() == {2: (20, 30)}


def test_own_prefix_is_not_counted_as_room() -> None:
    bench = Bench(pool=50, chunk=100)
    bench.add(range(30), max_tokens=1)
    bench.drain()
    bench.add(range(200, 210), max_tokens=9)
    bench.plan()
    # Needs 15 more; free are 50-30-11=9, and evicting its own 30 would not help.
    bench.add((*range(30), *range(300, 314)), max_tokens=2)
    assert list(bench.plan()) == [2]
    assert bench.cache.books().evicted_tokens == 0
    bench.drain()
    assert bench.scheduler.preemptions == 0


def test_a_start_that_fails_for_want_of_room_leaves_no_trace() -> None:
    bench = Bench(pool=50, chunk=100)
    bench.add(range(20), max_tokens=1)
    bench.drain()
    bench.add(range(100, 110), max_tokens=1)
    bench.drain()
    bench.add(range(200, 205), max_tokens=9)
    bench.plan()
    # It needs 27 more; 15 are free, and 10 can be evicted beside its own 20.
    waiting = bench.add((*range(20), *range(300, 326)), max_tokens=2)
    before = bench.cache.books()
    bench.plan()
    assert (waiting.lease, bench.scheduler.waiting) == (None, 1)
    assert bench.cache.books().leased == before.leased
    # Its prefix is still the least recently used: looking has not refreshed it.
    pressing = bench.cache.lease(NAMESPACE, np.empty(0, dtype=np.int32))
    bench.cache.grow(pressing, 20)
    assert bench.cache.match(NAMESPACE, np.arange(100, 110, dtype=np.int32)).tokens == 10
    assert bench.cache.match(NAMESPACE, np.arange(20, dtype=np.int32)).tokens < 20


def test_requests_that_run_are_counted_once_whatever_their_samples() -> None:
    bench = Bench(chunk=100)
    first = bench.add(range(5))
    second = Sequence(
        SeqId(50),
        first.request,
        NAMESPACE,
        np.arange(20, 25, dtype=np.int32),
        arrival=first.arrival,
        sample=1,
        max_len=9,
    )
    bench.scheduler.add(second)
    bench.add(range(10, 15))
    assert bench.scheduler.running_requests == 0
    bench.plan()
    assert (bench.scheduler.running, bench.scheduler.running_requests) == (3, 2)
    bench.scheduler.finish(first.id)
    assert (bench.scheduler.running, bench.scheduler.running_requests) == (2, 2)
    bench.scheduler.finish(second.id)
    assert (bench.scheduler.running, bench.scheduler.running_requests) == (1, 1)
    bench.drain()
    assert bench.scheduler.running_requests == 0


def test_the_youngest_is_preempted_comes_back_first_and_reuses_its_work() -> None:
    bench = Bench(pool=30, chunk=100)
    bench.add(range(10), max_tokens=14)
    young = bench.add(range(100, 110), max_tokens=14)
    bench.plan()
    while bench.scheduler.preemptions == 0:
        before = young.computed
        bench.plan()
    bench.add(range(200, 202), max_tokens=1)  # Would fit, but the preempted one is ahead of it.
    assert (young.lease, young.computed, young.preemptions) == (None, 0, 1)
    assert len(young) == before + 1
    while bench.scheduler.waiting == 2:
        assert list(bench.plan()) in ([1], [2, 3])
    assert young.reuse is not None
    assert young.reuse.reused == 0
    bench.drain()
    assert len(young) == 24
    assert bench.scheduler.preemptions == 1


def test_a_preempted_sequence_is_ahead_of_the_policy() -> None:
    bench = Bench(pool=30, chunk=100, policy="lpm")
    bench.add(range(10), max_tokens=16)
    young = bench.add(range(100, 110), max_tokens=16, reuse=False)
    while bench.scheduler.preemptions == 0:
        bench.plan()
    favourite = bench.add((*range(10), 500), max_tokens=1)  # Longest prefix first would choose this one.
    bench.plan()
    assert bench.scheduler.waiting == 2
    while favourite.lease is None and len(favourite) == 11:
        bench.plan()
    assert young.preemptions == 1
    assert len(young) > 21 or young.lease is not None


def test_what_can_never_fit_is_refused_with_the_numbers_and_the_next_one_runs() -> None:
    bench = Bench(pool=50)
    held = bench.cache.lease(NAMESPACE, np.empty(0, dtype=np.int32))
    bench.cache.grow(held, 30)
    large, small = bench.add(range(25)), bench.add(range(100, 105))
    assert list(bench.plan()) == [2]
    refused, admitted = bench.scheduler.take_notices()
    assert isinstance(refused, Refused)
    assert refused.sequence is large
    assert "26 more tokens" in refused.reason
    assert "20 tokens' worth" in refused.reason
    assert admitted == Admitted(small)
    assert bench.scheduler.take_notices() == ()


# ---- verbs -----------------------------------------------------------------------------------------------


def test_finish_is_idempotent_and_knows_strangers() -> None:
    bench = Bench()
    sequence = bench.add(range(10))
    bench.plan()
    assert bench.scheduler.abort(sequence.id)
    assert not bench.scheduler.abort(sequence.id)
    assert not bench.scheduler.finish(SeqId(99))
    assert bench.cache.books().private == 0
    assert bench.cache.match(NAMESPACE, np.arange(10, dtype=np.int32)).tokens == 10


def test_a_failed_sequence_is_dropped_and_leaves_only_what_was_committed_before() -> None:
    bench = Bench(chunk=10)
    bench.add(range(30))
    bench.plan()
    plan = bench.scheduler.schedule()
    assert plan is not None
    (outcome,) = bench.apply(plan, failing=SeqId(1))
    assert outcome.error == "failed"
    assert bench.scheduler.running == 0
    assert bench.cache.match(NAMESPACE, np.arange(30, dtype=np.int32)).tokens == 10
    assert bench.cache.books().private == 0


def test_verbs_out_of_turn_are_refused() -> None:
    bench = Bench()
    sequence = bench.add(range(5))
    plan = bench.scheduler.schedule()
    assert plan is not None
    with pytest.raises(RuntimeError, match="apply it first"):
        bench.scheduler.schedule()
    with pytest.raises(RuntimeError, match="apply it first"):
        bench.scheduler.abort(sequence.id)
    bench.apply(plan)
    with pytest.raises(ValueError, match="does not answer"):
        bench.scheduler.apply(StepResult(plan.step, ()))


@pytest.mark.parametrize("length", [1, 64, 65, 300])
def test_a_sequence_grows_past_its_first_buffer(length: int) -> None:
    sequence = Sequence(
        SeqId(1),
        Request("r", (1,), SamplingParams(max_tokens=length)),
        NAMESPACE,
        np.array([1], dtype=np.int32),
        arrival=0,
        max_len=1 + length,
    )
    views = []
    for token in range(length):
        views.append(sequence.tokens)
        sequence.append(token)
    assert sequence.tokens.tolist() == [1, *range(length)]
    assert all(view.tolist() == [1, *range(count)] for count, view in enumerate(views))
    assert not sequence.draws


# ---- one budget (peer behaviours H 109 to 111) -----------------------------------------------------------


@pytest.mark.parametrize(("decoding", "left"), [(8, 56), (5, 59)])
def test_decoding_comes_off_the_budget_and_reading_fills_it_exactly(decoding: int, left: int) -> None:
    bench = Bench(chunk=64, max_running=20)
    for number in range(decoding):
        bench.add((500 + number,), max_tokens=9)
    bench.plan()
    bench.add(range(1000, 1056))
    bench.add(range(2000, 2030))
    plan = bench.plan()
    assert sum(tokens for _, tokens in plan.values()) == 64
    assert plan[decoding + 1] == (0, 56)
    assert plan.get(decoding + 2) == ((0, left - 56) if left > 56 else None)


def test_a_preempted_sequence_reads_prompt_and_output_again_before_it_draws() -> None:
    bench = Bench(pool=96, chunk=40)
    bench.add(range(500, 510), max_tokens=60)
    young = bench.add(range(37), max_tokens=50, reuse=False)
    while bench.scheduler.preemptions == 0:
        bench.plan()
    length = len(young)
    assert length > 41, "it has drawn"
    steps = []
    while len(young) == length:
        plan = bench.plan()
        if young.id in plan:
            steps.append(plan[young.id])
    assert sum(tokens for _, tokens in steps) == length
    assert steps[0][0] == 0
    assert len(steps) > 1
    assert all(tokens > 1 for _, tokens in steps)


def test_drawn_tokens_are_no_prompt_that_is_still_to_be_read() -> None:
    bench = Bench(chunk=128)
    sequence = bench.add(range(128), max_tokens=6)
    assert sequence.reading
    for drawn in range(1, 5):
        bench.plan()
        assert (sequence.generated, sequence.gap, sequence.reading) == (drawn, 1, False)
