"""Who waits for whom, seen in the plans."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from sapwood.cache import Match, Namespace, PrefixCache
from sapwood.config import CacheConfig, IndexName, OrderName, SchedulerConfig
from sapwood.plan import SequenceResult, StepResult
from sapwood.sched import Scheduler, Sequence
from sapwood.sched.in_flight import Overlap
from sapwood.types import Request, SamplingParams, SeqId, TokenLogprob


class Bench:
    """A scheduler whose plans are run by hand; (start, tokens) per sequence and step."""

    def __init__(
        self,
        *,
        chunk: int = 200,
        page_size: int = 1,
        policy: OrderName = "fcfs",
        patience: int = 10**6,
        index: IndexName = "radix",
        max_running: int = 8,
    ) -> None:
        self.cache = CountingCache(4096, CacheConfig(page_size=page_size, prefix_index=index))
        config = SchedulerConfig(chunk, max_running, schedule_policy=policy, patience_tokens=patience)
        self.scheduler = Scheduler(self.cache, config, reuse=index != "none")
        self.added: list[Sequence] = []

    def add(
        self, prompt: range | tuple[int, ...], max_tokens: int = 9, *, reuse: bool = True, tenant: str = ""
    ) -> Sequence:
        seq = SeqId(len(self.added) + 1)
        request = Request(f"r{seq}", tuple(prompt), SamplingParams(max_tokens=max_tokens), reuse=reuse)
        tokens = np.array(prompt, np.int32)
        namespace = Namespace("m", tenant=tenant)
        sequence = Sequence(seq, request, namespace, tokens, arrival=seq, max_len=len(prompt) + max_tokens)
        self.scheduler.add(sequence)
        self.added.append(sequence)
        return sequence

    def step(self, *, failing: bool = False) -> dict[int, tuple[int, int]]:
        """With `failing`, whoever reads fails."""
        plan = self.scheduler.schedule()
        if plan is None:
            return {}
        results = tuple(
            SequenceResult(work.seq, error="failed")
            if failing and len(work.tokens) > 1
            else SequenceResult(work.seq, None if work.sample is None else TokenLogprob(7, 0.0))
            for work in plan.works
        )
        for outcome in self.scheduler.apply(StepResult(plan.step, results)):
            if outcome.error is None and not outcome.sequence.draws:
                self.scheduler.finish(outcome.sequence.id)
        self.cache.check()
        return {work.seq: (work.start, len(work.tokens)) for work in plan.works}


class CountingCache(PrefixCache):
    lookups = 0

    def match(self, namespace: Namespace, tokens: NDArray[np.int32]) -> Match:
        self.lookups += 1
        return super().match(namespace, tokens)


def missed(sequence: Sequence) -> dict[str, int]:
    assert sequence.reuse is not None
    return dict(sequence.reuse.missed)


def test_an_equal_prompt_waits_one_step_and_then_reads_its_last_token() -> None:
    bench = Bench()
    bench.add(range(100))
    follower = bench.add(range(100))
    assert bench.step() == {1: (0, 100)}
    assert bench.step() == {1: (100, 1), 2: (99, 1)}
    assert missed(follower) == {"last_token": 1}


def test_one_that_arrives_while_the_leader_reads_follows_it() -> None:
    bench = Bench(chunk=40)
    bench.add(range(100))
    bench.step()
    bench.add((*range(97), *range(500, 510)))
    assert bench.step() == {1: (40, 40)}
    assert bench.step() == {1: (80, 20)}, "the other 20 of the budget must not go to tokens 80 .. 96"
    assert bench.step() == {1: (100, 1), 2: (97, 10)}


def test_the_unrelated_are_admitted_in_the_same_step_as_without_followers() -> None:
    bench = Bench()
    bench.add(range(1000, 1020))
    for _ in range(4):
        bench.add(range(100))
    bench.add(range(2000, 2020))
    assert bench.step() == {1: (0, 20), 2: (0, 100), 6: (0, 20)}
    assert list(bench.step()) == [1, 2, 6, 3, 4, 5]


@pytest.mark.parametrize(
    ("page_size", "shared", "own", "follows"),
    [
        (1, 16, 20, True),
        (1, 15, 20, False),  # Too short to be waited for.
        (1, 5, 1, True),  # Short, but all that it lacks.
        (16, 31, 20, True),  # One page of it.
        (16, 15, 20, False),  # No whole page.
        (32, 40, 1, True),
    ],
)
def test_what_is_worth_a_step(page_size: int, shared: int, own: int, follows: bool) -> None:
    bench = Bench(page_size=page_size)
    bench.add((*range(shared), *range(500, 540)))
    follower = bench.add((*range(shared), *range(600, 600 + own)))
    assert (2 not in bench.step()) == follows
    bench.step()
    assert follower.reuse is not None
    assert follower.reuse.reused == (shared // page_size * page_size if follows else 0)
    whole_pages = shared // page_size * page_size
    assert missed(follower).get("in_flight", 0) == (0 if follows else whole_pages)
    assert follower.reuse.reused + sum(follower.reuse.missed.values()) == shared + own


def test_the_longest_of_two_leaders_is_waited_for() -> None:
    bench = Bench()
    bench.add((*range(20), *range(500, 520)), reuse=False)
    bench.add((*range(40), *range(600, 620)), reuse=False)
    follower = bench.add(range(60))
    assert list(bench.step()) == [1, 2]
    assert bench.step()[3] == (40, 20)
    assert follower.followed == 40


@pytest.mark.parametrize(("lacks", "follows"), [(99, False), (100, True)])
def test_one_that_reads_anew_what_is_cached_leads_only_if_the_rest_is_worth_it(
    lacks: int, follows: bool
) -> None:
    bench = Bench(chunk=100)
    bench.add(range(200), max_tokens=1)
    for _ in range(3):
        bench.step()
    bench.add(range(400), reuse=False)
    bench.step()
    # Its leader has yet to read 100 tokens that it finds cached.
    bench.add((*range(200 + lacks), *range(900, 920)))
    assert (3 not in bench.step()) == follows


def test_who_may_not_read_the_cache_does_not_follow_but_leads() -> None:
    bench = Bench()
    bench.add(range(100), reuse=False)
    bench.add(range(100), reuse=False)
    bench.add(range(101))
    assert bench.step() == {1: (0, 100), 2: (0, 100)}
    assert bench.step()[3] == (100, 1)


def test_namespaces_do_not_meet() -> None:
    bench = Bench()
    bench.add(range(100), tenant="a")
    bench.add(range(100), tenant="b")
    assert bench.step() == {1: (0, 100), 2: (0, 100)}


def test_nobody_follows_without_an_index() -> None:
    bench = Bench(index="none")
    bench.add(range(100))
    bench.add(range(100))
    assert bench.step() == {1: (0, 100), 2: (0, 100)}


def test_nobody_follows_a_leader_whose_commits_a_flush_has_cut_off() -> None:
    bench = Bench(chunk=40)
    bench.add(range(100))
    bench.step()
    bench.cache.flush()
    bench.step()
    bench.add(range(100))
    assert bench.step() == {1: (80, 20), 2: (0, 20)}


def test_a_decoding_sequence_leads_nobody() -> None:
    bench = Bench(page_size=16)
    bench.add(range(30))
    bench.step()
    bench.step()
    # It fills its second page in this step, but what is drawn is committed only at the end.
    bench.add((*range(30), 7, 7, 7, 7))
    assert bench.step() == {1: (31, 1), 2: (16, 18)}


def test_what_a_leader_read_before_a_flush_is_not_in_flight() -> None:
    bench = Bench(chunk=40)
    bench.add(range(100))
    bench.step()
    bench.step()
    bench.cache.flush()
    bench.add((*range(20), 500, *range(21, 100)))
    assert bench.step() == {1: (80, 20), 2: (0, 20)}


def test_the_first_follower_takes_over_when_the_leader_fails_and_in_the_end_all_go_alone() -> None:
    bench = Bench()
    for _ in range(8):
        bench.add(range(100))
    assert [list(bench.step(failing=True)) for _ in range(6)] == [[1], [2], [3], [4], [5], [6, 7]]
    assert bench.step() == {8: (0, 100)}
    assert missed(bench.added[6]) == {"in_flight": 99, "last_token": 1}
    assert bench.added[7].followed == 99 * 5


def test_the_first_follower_takes_over_when_the_leader_is_aborted() -> None:
    bench = Bench(chunk=40)
    for _ in range(3):
        bench.add(range(100))
    bench.step()
    bench.scheduler.abort(SeqId(1))
    assert bench.step() == {2: (40, 40)}
    assert bench.step() == {2: (80, 20)}
    assert bench.step() == {2: (100, 1), 3: (99, 1)}


@pytest.mark.parametrize(("passed", "begins"), [(0, True), (99, True), (100, False)])
def test_who_stands_at_the_front_is_not_passed_over_while_it_follows(passed: int, begins: bool) -> None:
    bench = Bench(policy="default", patience=100, chunk=40)
    bench.add(range(60))
    bench.step()
    bench.add(range(60))
    bench.scheduler._queue._table.column("passed")[0] = passed
    bench.add(range(3000, 3010))
    assert (3 in bench.step()) == begins
    assert bench.step()[2] == (59, 1)


def test_a_step_leaves_out_a_bounded_number() -> None:
    bench = Bench()
    for _ in range(100):
        bench.add(range(100))
    bench.step()
    assert sum(sequence.followed > 0 for sequence in bench.added) == 64


def test_one_follows_a_long_leader_through_many_steps_and_is_charged_its_own_length_at_most() -> None:
    bench = Bench(chunk=40)
    bench.add(range(1000))
    bench.step()
    follower = bench.add((*range(900), *range(5000, 5005)))
    while follower.lease is None:
        bench.step()
    assert follower.reuse is not None
    assert follower.reuse.reused == 900
    assert follower.followed <= len(follower)


def test_a_short_prompt_passes_the_followers_of_a_long_leader() -> None:
    bench = Bench(chunk=40)
    bench.add(range(1000))
    for _ in range(3):
        bench.add(range(1000))
    bench.add(range(3000, 3010))
    assert bench.step() == {1: (0, 30), 5: (0, 10)}


def test_a_stretch_that_a_stalled_reader_would_compute_is_not_waited_for() -> None:
    """Of two long ones the second gets nothing while the first reads; who shares with it reads for itself."""
    bench = Bench(chunk=40)
    bench.add(range(2000, 3000), reuse=False)
    bench.add(range(5000, 5900))
    bench.step()
    bench.scheduler._start(bench.added[1], 0, Overlap())
    bench.add((*range(5000, 5020), 7, 8))
    assert bench.step() == {1: (40, 20), 3: (0, 20)}


@pytest.mark.parametrize("policy", ["fcfs", "default", "lpm", "priority"])
@pytest.mark.parametrize("followers", [1, 63, 64, 65, 200, 1000])
def test_an_unrelated_prompt_is_not_held_up_by_followers_however_many_they_are(
    followers: int, policy: OrderName
) -> None:
    """Each step looks at 64 more of them; those that it knows to follow cost no look."""
    bench = Bench(chunk=40, policy=policy)
    bench.add(range(2000))
    for _ in range(followers):
        bench.add(range(2000))
    unrelated = bench.add(range(3000, 3010))
    steps = 0
    while unrelated.lease is None and unrelated.reuse is None:
        assert set(bench.step()) <= {1, unrelated.id}
        steps += 1
    assert steps == 1 + followers // 64


@pytest.mark.parametrize("followers", [10, 100, 1000, 10_000])
def test_followers_that_are_known_are_not_looked_up_again(followers: int) -> None:
    bench = Bench(chunk=4)
    bench.add(range(1000))
    for _ in range(followers):
        bench.add(range(1000))
    counts = []
    for _ in range(1 + followers // 64 + 3):
        bench.cache.lookups = 0
        bench.step()
        counts.append(bench.cache.lookups)
    assert max(counts) <= 2 * 64 + 4
    assert counts[-3:] == [0, 0, 0]


def test_a_follower_is_charged_once_for_a_stretch_however_long_it_waits_and_never_more_than_its_length() -> (
    None
):
    bench = Bench(chunk=40, policy="default", patience=100)
    bench.add(range(1000))
    bench.step()
    follower = bench.add(range(900))
    bench.scheduler._queue._table.column("passed")[0] = 100  # At the front, so it is looked at in each step.
    for _ in range(10):
        bench.step()
        assert follower.followed == 899 - 40
    while follower.lease is None:
        bench.step()
    assert follower.reuse is not None
    assert follower.reuse.reused == 899


@pytest.mark.parametrize("ending", ["abort", "fail", "flush"])
def test_followers_are_looked_at_again_at_once_when_their_leader_no_longer_leads(ending: str) -> None:
    bench = Bench(chunk=40)
    for _ in range(4):
        bench.add(range(400))
    bench.step()
    if ending == "abort":
        bench.scheduler.abort(SeqId(1))
    elif ending == "flush":
        bench.cache.flush()
    else:
        bench.step(failing=True)
    assert 2 in bench.step() or ending == "flush"
    while bench.scheduler.running:
        bench.step()
    assert all(s.reuse is not None for s in bench.added[1:])
    assert bench.scheduler.waiting == 0


def test_one_that_follows_to_a_shorter_end_than_all_it_lacks_stops_before_what_is_too_short_to_wait_for() -> (
    None
):
    bench = Bench(chunk=10)
    bench.add(range(1000))
    bench.step()
    follower = bench.add((*range(55), *range(5000, 5100)))
    while follower.reuse is None:
        bench.step()
    # At 40 of 55 the 15 that are left are not worth a step.
    assert (follower.reuse.reused, follower.reuse.missed["in_flight"]) == (40, 15)
