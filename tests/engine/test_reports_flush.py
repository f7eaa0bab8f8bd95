"""Reports of flushes that were refused, or that left something behind (kind 11, and K 11)."""

from __future__ import annotations

import pytest

from engine.reports import ORDERS, Kind, ReportRig, each_eviction, each_index, stranger
from engine.rig import greedy, prompt_of
from sapwood.config import OrderName
from sapwood.errors import NotFoundError


@each_index
def test_while_a_long_stream_runs_a_flush_is_done_and_nothing_older_matches(kind: Kind) -> None:
    """AD-01. It says what it freed and what the stream keeps; that matches no more, then or later."""
    rig = ReportRig(kind, 512, chunk=64)
    rig.ask(stranger(64, 1), greedy(1))
    stream = rig.add(prompt_of(64), greedy(60))
    for _ in range(5):
        rig.step()
    done = rig.engine.flush()
    rig.cache.check()
    assert (done.flushed_tokens, done.kept_tokens) == (64, 64)
    for prompt in (prompt_of(64), stranger(64, 1)):
        log = rig.add(prompt, greedy(2))
        rig.step()
        assert log.started is not None
        assert log.started.reused == 0
        assert set(log.started.missed) <= {"never_seen", "page_tail", "last_token"}
    rig.run()
    # What the stream computed, before the flush and on top of it, is not stored; what came after is.
    tail = stream.samples[0].tokens
    assert rig.ask(prompt_of(64) + tail, greedy(1)).usage.reused <= 66
    rig.expect_end()


@each_index
def test_a_hundred_flushes_right_after_an_answer_succeed(kind: Kind) -> None:
    """AD-02, without tiers."""
    rig = ReportRig(kind, 64)
    for _ in range(100):
        log = rig.ask(prompt_of(33), greedy(1))
        assert log.usage.reused == 0
        assert rig.engine.flush().kept_tokens == 0
        assert rig.cache.books().free == rig.cache.capacity_pages
    rig.expect_end()


@each_index
@pytest.mark.parametrize("policy", ORDERS)
def test_with_waiting_and_pushed_back_requests_a_flush_is_done_and_all_finish(
    kind: Kind, policy: OrderName
) -> None:
    """AD-04."""
    rig = ReportRig(kind, 96, chunk=16, policy=policy)
    for i in range(5):
        rig.add(stranger(30, i), greedy(40))
    while rig.engine.stats().preemptions == 0:
        rig.step()
    assert rig.engine.stats().waiting >= 3
    rig.flush()
    rig.run()
    rig.expect_end()


@each_eviction
@pytest.mark.parametrize("every", [1, 4])
def test_flushes_under_load_change_no_answer_and_who_starts_after_one_sees_nothing_older(
    kind: Kind, every: int
) -> None:
    """K 11. After each flush a newcomer with the shared prefix; it may only read what was computed since."""
    rig = ReportRig(kind, 480, chunk=64, max_running=6)
    for i in range(6):
        rig.add(prompt_of(64) + stranger(12, i), greedy(30))
    for turn in range(12):
        for _ in range(every):
            rig.step()
        rig.flush()
        before = rig.runner.computed_tokens
        newcomer = rig.add(prompt_of(64) + stranger(5, 50 + turn), greedy(3))
        while newcomer.started is None:
            rig.step()
        assert newcomer.started.reused <= rig.runner.computed_tokens - before
    rig.run()
    rig.expect_end()


@each_index
def test_a_flush_ends_pins_and_their_pages_are_free(kind: Kind) -> None:
    """K 11, for what an operator holds."""
    rig = ReportRig(kind, 256, pin_tokens=128)
    log = rig.ask(prompt_of(100), greedy(1))
    pin = rig.engine.pin("p", log.request.scope, prompt_of(100), rig.now)
    assert pin is not None
    assert pin.pinned_tokens == kind.whole(100)
    rig.flush()
    with pytest.raises(NotFoundError):
        rig.engine.pins.unpin("p")
    assert rig.cache.books().free == rig.cache.capacity_pages
    assert rig.ask(prompt_of(100), greedy(1)).usage.reused == 0
    rig.expect_end()
