"""Requests that end early: clients that leave, steps that fail, flushes in between."""

from __future__ import annotations

import pytest

from engine.rig import Log, Rig, greedy, prompt_of
from sapwood.plan import StepPlan
from sapwood.types import SamplingParams, SeqId


def expect_aborted(log: Log) -> None:
    assert log.finished is not None
    assert log.finished.error is None
    assert "abort" in {sample.finish for sample in log.samples.values()}


@pytest.mark.parametrize("steps", range(16))
@pytest.mark.parametrize("page_size", [1, 8])
def test_abort_at_every_point_of_a_request(steps: int, page_size: int) -> None:
    rig = Rig(pool=256, page_size=page_size, chunk=16, max_running=2)
    neighbour = rig.add(prompt_of(40) + prompt_of(10, salt=1), greedy(20))
    victim = rig.add(prompt_of(90), greedy(6, n=2))
    queued = rig.add(prompt_of(40), greedy(5))
    for _ in range(steps):
        rig.step()
    over = victim.finished is not None
    rig.abort(victim)
    if not over:
        expect_aborted(victim)
    rig.abort(victim)  # A second one does nothing.
    rig.run()
    rig.expect_solo(neighbour)
    rig.expect_solo(queued)
    assert rig.engine.stats().aborts == (0 if over else 1)
    rig.expect_solo(rig.ask(prompt_of(90), greedy(6)))
    rig.expect_no_leaks()


def test_what_an_aborted_prompt_computed_is_reused_and_right() -> None:
    rig = Rig(pool=512, chunk=32)
    dropped = rig.add(prompt_of(256), greedy(5))
    rig.step()
    rig.step()
    rig.abort(dropped)
    for i in range(5):
        rig.ask(prompt_of(30, salt=i + 1), greedy(2))
    again = rig.ask(prompt_of(256), greedy(5))
    rig.expect_solo(again)
    assert again.usage.reused == 64
    rig.expect_no_leaks()


def test_queued_requests_that_are_dropped_while_the_pool_is_full() -> None:
    rig = Rig(pool=64, chunk=32)
    running = rig.add(prompt_of(30), greedy(30))
    queued = [rig.add(prompt_of(30) + prompt_of(20, salt=i), greedy(5)) for i in range(50)]
    for log in queued:
        rig.step()
        rig.abort(log)
    rig.run()
    rig.expect_solo(running)
    rig.expect_no_leaks()


def test_aborted_before_it_was_read_still_has_usage_that_adds_up() -> None:
    rig = Rig()
    log = rig.add(prompt_of(10))
    rig.abort(log)
    assert log.usage.missed == {"not_read": 10}
    assert rig.engine.stats().prompt_tokens == 0
    assert not rig.engine.busy


def test_samples_that_still_wait_end_with_their_request() -> None:
    rig = Rig(chunk=8)
    log = rig.add(prompt_of(40), SamplingParams(n=5, max_tokens=9))
    rig.step()
    rig.abort(log)
    expect_aborted(log)
    assert len(log.samples) == 5
    rig.expect_no_leaks()


# ---- failures --------------------------------------------------------------------------------------------


class FailAt:
    """Raises, or fails the given sequences, on the given step."""

    def __init__(self, step: int, failing: frozenset[SeqId] | None = None) -> None:
        self.step = step
        self.failing = failing

    def __call__(self, plan: StepPlan) -> frozenset[SeqId]:
        if plan.step != self.step:
            return frozenset()
        if self.failing is None:
            raise RuntimeError("the device fell over")
        return self.failing


@pytest.mark.parametrize("step", range(1, 12))
def test_a_step_that_raises_fails_its_requests_and_no_others(step: int) -> None:
    rig = Rig(pool=512, chunk=16, max_running=2, hook=FailAt(step))
    logs = [rig.add(prompt_of(30) + prompt_of(8, salt=i), greedy(6)) for i in range(6)]
    rig.run()
    failed = [log for log in logs if log.finished is not None and log.finished.error is not None]
    assert 1 <= len(failed) <= 2
    for log in logs:
        if log in failed:
            assert log.finished is not None
            assert "the device fell over" in str(log.finished.error)
        else:
            rig.expect_solo(log)
    for i in range(6):
        rig.expect_solo(rig.ask(prompt_of(30) + prompt_of(8, salt=i), greedy(6)))
    rig.expect_no_leaks()


@pytest.mark.parametrize("step", range(1, 9))
@pytest.mark.parametrize("page_size", [1, 4])
def test_one_failed_sequence_ends_alone_and_what_it_computed_is_not_kept(step: int, page_size: int) -> None:
    rig = Rig(pool=512, page_size=page_size, chunk=32, hook=FailAt(step, frozenset({SeqId(2)})))
    logs = [rig.add(prompt_of(30, salt=i), greedy(6)) for i in range(3)]
    rig.run()
    rig.expect_solo(logs[0])
    rig.expect_solo(logs[2])
    assert logs[1].finished is not None
    was_in_step = logs[1].finished.error is not None
    if not was_in_step:
        rig.expect_solo(logs[1])
    # If a poisoned page had been committed, the fake runner would refuse to read it here.
    rig.expect_solo(rig.ask(prompt_of(30, salt=1), greedy(6)))
    rig.expect_no_leaks()


def test_one_failed_sample_ends_its_request() -> None:
    rig = Rig(chunk=64, hook=FailAt(3, frozenset({SeqId(3)})))
    other = rig.add(prompt_of(12, salt=5), greedy(9))
    log = rig.add(prompt_of(20), SamplingParams(n=4, max_tokens=9, seed=1))
    rig.run()
    rig.expect_solo(other)
    assert log.finished is not None
    assert log.finished.error is not None
    assert rig.engine.stats().failures == 1
    rig.expect_no_leaks()


def test_a_detokenizer_that_raises_fails_one_request() -> None:
    class Broken:
        def __init__(self, prompt: tuple[int, ...]) -> None:
            self.broken = prompt[0] == 3

        def add(self, token: int) -> str:
            if self.broken:
                raise ValueError("no such piece")
            return f"{token} "

        def flush(self) -> str:
            return ""

    rig = Rig()
    rig.engine._detokenizer = Broken
    bad, good = rig.add((3, 1, 2), greedy(4)), rig.add((4, 1, 2), greedy(4))
    rig.run()
    assert bad.finished is not None
    assert "no such piece" in str(bad.finished.error)
    assert good.finished is not None
    assert good.finished.error is None
    rig.expect_no_leaks()


# ---- flush -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page_size", [1, 4])
def test_flush_under_load_changes_no_answer_and_nothing_older_matches(page_size: int) -> None:
    rig = Rig(pool=600, page_size=page_size, chunk=32, max_running=4)
    shared = prompt_of(64)
    logs = [rig.add(shared + prompt_of(12, salt=i), greedy(20)) for i in range(8)]
    for _ in range(30):
        rig.step()
        rig.engine.flush()
        rig.cache.check()
    rig.engine.flush()
    fresh = rig.add(shared + prompt_of(5, salt=77), greedy(3))
    rig.run()
    for log in (*logs, fresh):
        rig.expect_solo(log)
    rig.expect_no_leaks()


def test_after_a_flush_a_running_stream_leaves_nothing_older() -> None:
    rig = Rig(chunk=64)
    stream = rig.add(prompt_of(50), greedy(30))
    for _ in range(5):
        rig.step()
    flushed = rig.engine.flush()
    assert flushed.kept_tokens > 0
    rig.run()
    rig.expect_solo(stream)
    assert rig.ask(prompt_of(50), greedy(1)).usage.reused == 0


def test_flush_with_a_waiting_queue_and_a_preempted_request() -> None:
    rig = Rig(pool=72, chunk=16)
    logs = [rig.add(prompt_of(30, salt=i), greedy(30)) for i in range(4)]
    while rig.engine.stats().preemptions == 0:
        rig.step()
    rig.engine.flush()
    rig.run()
    for log in logs:
        rig.expect_solo(log)
    rig.expect_no_leaks()
