"""Pools that are too small: preemption, order, and that everything ends."""

from __future__ import annotations

import numpy as np
import pytest

from engine.rig import Rig, greedy, prompt_of
from sapwood.cache import Namespace
from sapwood.config import OrderName
from sapwood.errors import ContextLengthError
from sapwood.plan import StepPlan
from sapwood.types import SamplingParams, SeqId


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("policy", ["fcfs", "lpm", "default", "dfs-weight", "priority", "random"])
def test_twenty_clients_with_a_pool_for_one_and_a_fifth_all_finish(page_size: int, policy: OrderName) -> None:
    rig = Rig(pool=72, page_size=page_size, chunk=16, policy=policy)
    logs = [rig.add(prompt_of(30, salt=i), greedy(30)) for i in range(20)]
    rig.run()
    for log in logs:
        rig.expect_solo(log)
    # Far from redoing everything again and again.
    assert rig.runner.computed_tokens < 2 * 20 * 60
    rig.expect_no_leaks()


def test_pool_for_three_of_six_with_a_shared_prefix() -> None:
    rig = Rig(pool=400, chunk=64)
    logs = [rig.add(prompt_of(40) + prompt_of(10, salt=i + 1), greedy(100)) for i in range(6)]
    rig.run()
    for log in logs:
        rig.expect_solo(log)
    assert rig.engine.stats().preemptions > 0
    rig.expect_no_leaks()


def test_growth_of_one_that_pushes_back_all_others_in_one_step() -> None:
    rig = Rig(pool=64, page_size=32, chunk=64)
    logs = [rig.add(prompt_of(31, salt=i), greedy(20)) for i in range(2)]
    rig.run()
    for log in logs:
        rig.expect_solo(log)
    assert rig.engine.stats().preemptions > 0
    rig.expect_no_leaks()


def test_the_oldest_is_never_preempted_and_ends_first() -> None:
    rig = Rig(pool=100, chunk=32)
    logs = [rig.add(prompt_of(20, salt=i), greedy(60)) for i in range(5)]
    while logs[0].finished is None:
        rig.step()
    assert rig.engine.stats().preemptions > 0
    assert all(log.finished is None for log in logs[1:])
    assert rig.runner.computed_by_seq[1] == 20 + 59  # type: ignore[index]
    rig.run()
    for log in logs:
        rig.expect_solo(log)


def test_coming_back_is_a_hit_and_is_counted_once() -> None:
    rig = Rig(pool=110, chunk=64, max_running=2)
    old, young = rig.add(prompt_of(30, salt=1), greedy(40)), rig.add(prompt_of(30, salt=2), greedy(40))
    rig.run()
    rig.expect_solo(old)
    rig.expect_solo(young)
    stats = rig.engine.stats()
    assert stats.preemptions >= 1
    assert stats.reused_tokens == 0
    assert stats.prompt_tokens == 60
    # The younger one got most of its pages back instead of computing them anew.
    assert rig.runner.computed_tokens < 2 * 69 + 30
    rig.expect_no_leaks()


def test_a_waiting_request_is_looked_up_but_counted_once() -> None:
    rig = Rig(pool=80, chunk=64)
    rig.ask(prompt_of(20, salt=1), greedy(1))
    rig.add(prompt_of(40, salt=2), greedy(30))
    for _ in range(3):
        rig.step()
    waiting = rig.add(prompt_of(20, salt=1) + prompt_of(30, salt=3), greedy(4))
    for _ in range(10):
        rig.step()
    assert waiting.started is None
    rig.run()
    rig.expect_solo(waiting)
    assert rig.engine.stats().prompt_tokens == 20 + 40 + 50


def test_own_matched_pages_are_not_room() -> None:
    # 40 of 64 pages are this prompt's own prefix; 30 more do not fit beside another request's 10.
    rig = Rig(pool=64, chunk=64)
    rig.ask(prompt_of(40), greedy(1))
    other = rig.add(prompt_of(8, salt=3), greedy(12))
    rig.step()
    mine = rig.add(prompt_of(40) + prompt_of(20, salt=4), greedy(4))
    rig.run()
    rig.expect_solo(other)
    rig.expect_solo(mine)
    rig.expect_no_leaks()


@pytest.mark.parametrize("chunk", [2, 3, 4])
def test_preempted_while_its_prompt_is_scored(chunk: int) -> None:
    rig = Rig(pool=52, chunk=chunk)
    old = rig.add(prompt_of(20, salt=1), greedy(33))
    scored = rig.add(prompt_of(25, salt=2), greedy(5, prompt_logprobs=1))
    while rig.engine.stats().preemptions == 0:
        assert scored.scored is None, "it must be preempted before the prompt is read"
        rig.step()
    rig.run()
    rig.expect_solo(old)
    rig.expect_solo(scored)
    assert scored.scored == (None, *rig.runner.score(prompt_of(25, salt=2), 1))
    rig.expect_no_leaks()


def test_sampled_draws_survive_preemption() -> None:
    rig = Rig(pool=90, chunk=16)
    logs = [rig.add(prompt_of(20, salt=i), SamplingParams(max_tokens=40, seed=i, n=2)) for i in range(4)]
    rig.run()
    assert rig.engine.stats().preemptions > 0
    for log in logs:
        rig.expect_solo(log)
    rig.expect_no_leaks()


def test_a_request_that_can_never_have_room_fails_with_the_numbers_and_the_engine_lives() -> None:
    rig = Rig(pool=64, chunk=64)
    outside = rig.cache.lease(Namespace("someone else"), np.empty(0, dtype=np.int32))
    rig.cache.grow(outside, 40)
    log = rig.ask(prompt_of(30), greedy(4))
    assert log.finished is not None
    assert log.finished.error is not None
    assert "pool's 64" in log.finished.error
    growing = rig.ask(prompt_of(20), greedy(20))
    assert growing.finished is not None
    assert growing.finished.error is not None
    rig.cache.release(outside)
    rig.expect_solo(rig.ask(prompt_of(30), greedy(4)))
    rig.expect_no_leaks()


def test_one_that_can_never_have_room_fails_beside_one_that_starts_in_the_same_step() -> None:
    rig = Rig(pool=64, chunk=64)
    outside = rig.cache.lease(Namespace("someone else"), np.empty(0, dtype=np.int32))
    rig.cache.grow(outside, 40)
    large, small = rig.add(prompt_of(30), greedy(4, n=2)), rig.add(prompt_of(10), greedy(4))
    rig.step()
    assert large.finished is not None
    assert "pool's 64" in str(large.finished.error)
    rig.run()
    rig.expect_solo(small)
    assert rig.engine.stats().failures == 1
    rig.cache.release(outside)
    rig.expect_no_leaks()


def test_one_whose_answer_would_outgrow_the_pool_is_refused_at_the_door_or_ends_at_its_edge() -> None:
    rig = Rig(pool=100, chunk=32)
    with pytest.raises(ContextLengthError, match="the KV pool holds 100 tokens"):
        rig.add(prompt_of(80), greedy(200))
    log = rig.ask(prompt_of(80), greedy(None))
    assert (len(log.samples[0].tokens), log.samples[0].finish) == (21, "length")
    rig.expect_solo(rig.ask(prompt_of(80, salt=1), greedy(5)))
    rig.expect_no_leaks()


class FailSteps:
    """Whoever runs in these steps fails."""

    def __init__(self, *steps: int) -> None:
        self._steps = steps

    def __call__(self, plan: StepPlan) -> frozenset[SeqId]:
        return frozenset(work.seq for work in plan.works) if plan.step in self._steps else frozenset()


def test_what_a_failed_prompt_had_reserved_is_there_for_the_next_ones_at_once() -> None:
    rig = Rig(pool=100, chunk=128, hook=FailSteps(1))
    failed = rig.add(prompt_of(90), greedy(5))
    waiting = [rig.add(prompt_of(10, salt=i + 1), greedy(4)) for i in range(5)]
    rig.step()
    assert failed.finished is not None
    assert failed.finished.error is not None
    assert not any(log.started is not None for log in waiting), "there was no room beside it"
    rig.step()
    assert all(log.started is not None for log in waiting)
    rig.run()
    for log in waiting:
        rig.expect_solo(log)
    rig.expect_no_leaks()


@pytest.mark.parametrize("page_size", [1, 4])
def test_fifty_clients_on_one_prefix_that_hang_up_at_any_time_in_a_tight_pool(page_size: int) -> None:
    rig = Rig(pool=160, page_size=page_size, chunk=32, max_running=6)
    logs = [rig.add((*prompt_of(60), i % 40, *prompt_of(6, salt=i)), greedy(20)) for i in range(50)]
    gone = []
    for number in range(1000):
        if not rig.engine.busy:
            break
        victim = logs[number * 7 % 50]
        if number % 3 == 0 and victim.finished is None:
            rig.abort(victim)
            gone.append(victim)
        rig.step()
    assert 5 < len(gone) < 45
    for log in logs:
        if log not in gone:
            rig.expect_solo(log)
    stats = rig.engine.stats()
    assert (stats.aborts, stats.finished) == (len(gone), 50 - len(gone))
    rig.expect_no_leaks()


@pytest.mark.parametrize("policy", ["fcfs", "default", "priority", "dfs-weight"])
def test_a_storm_of_preemptions_makes_progress_in_every_policy(policy: OrderName) -> None:
    """Six that run, room for three: answers much longer than the prompts, so all outgrow what they were given."""
    rig = Rig(pool=330, chunk=64, max_running=6, policy=policy)
    logs = [rig.add(prompt_of(10, salt=i), greedy(95)) for i in range(12)]
    rig.run()
    for log in logs:
        rig.expect_solo(log)
    stats = rig.engine.stats()
    assert stats.preemptions > 0
    # What was pushed back is mostly found again: not even half of the work is done twice.
    assert rig.runner.computed_tokens < 1.5 * 12 * 104
    rig.expect_no_leaks()
