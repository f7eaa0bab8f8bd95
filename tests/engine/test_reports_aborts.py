"""Reports of requests that end early or are pushed back (kind 3)."""

from __future__ import annotations

import random

import pytest

from engine.reports import ORDERS, Kind, ReportRig, each_eviction, each_index, stranger
from engine.rig import greedy, prompt_of
from sapwood.config import OrderName
from sapwood.errors import ContextLengthError
from sapwood.types import SamplingParams


@each_index
def test_a_request_whose_client_left_stops_within_the_step_and_normal_ends_are_no_aborts(kind: Kind) -> None:
    """AB-02 and AB-03."""
    rig = ReportRig(kind, max_running=2)
    log = rig.add(prompt_of(20), greedy(2000, ignore_eos=True))
    while not log.samples or len(log.samples[0].tokens) < 5:
        rig.step()
    rig.abort(log)
    computed = rig.runner.computed_tokens
    assert (rig.engine.stats().running, rig.engine.busy) == (0, False)
    rig.step()
    assert rig.runner.computed_tokens == computed
    for i in range(20):
        rig.ask(stranger(5, i), greedy(2))
    stats = rig.engine.stats()
    assert (stats.aborts, stats.finished) == (1, 20)
    rig.expect_end(log)


@each_index
def test_after_an_abandoned_turn_the_next_one_has_the_tokens_it_was_given_and_no_others(kind: Kind) -> None:
    """AB-01. What the abandoned turn went on to say is at most a hit, never context."""
    rig = ReportRig(kind)
    turn = rig.add(prompt_of(40), greedy(200))
    while not turn.samples or len(turn.samples[0].tokens) < 3:
        rig.step()
    heard = turn.samples[0].tokens
    rig.step()
    rig.abort(turn)
    log = rig.ask(prompt_of(40) + heard + (9, 9), greedy(6))
    assert log.usage.prompt_tokens == 40 + len(heard) + 2
    assert log.usage.reused == kind.whole(40 + len(heard))
    rig.expect_end(turn)


@each_eviction
def test_fifty_clients_on_one_prefix_that_hang_up_at_random_in_a_pool_nine_tenths_full(kind: Kind) -> None:
    """AB-04. A tenth of the pool is left beside what a pin and the running ones hold."""
    rig = ReportRig(kind, 640, chunk=64, max_running=12, pin_tokens=320)
    rig.ask(prompt_of(320), greedy(1))
    rig.engine.pin("p", rig.logs["r0"].request.scope, prompt_of(320), rig.now)
    rng = random.Random(1)
    logs = [rig.add(prompt_of(320) + stranger(5 + i % 20, i), greedy(4 + i % 25)) for i in range(50)]
    gone, fullest = [], 0
    while rig.engine.busy:
        if rng.random() < 0.3:
            victim = rng.choice(logs)
            if victim.finished is None:
                rig.abort(victim)
                gone.append(victim)
        rig.step()
        books = rig.cache.books()
        fullest = max(fullest, books.leased + books.private)
    assert fullest >= 0.9 * rig.cache.capacity_pages
    assert 5 < len(gone) < 45
    stats = rig.engine.stats()
    assert (stats.aborts, stats.finished) == (len(gone), 51 - len(gone))
    rig.engine.pins.unpin("p")
    rig.expect_end(*gone)


@each_index
def test_a_cancel_around_the_step_of_the_last_token_gives_one_end(kind: Kind) -> None:
    """AB-05. Right before that step, and right after it."""
    rig = ReportRig(kind, chunk=64)
    before, after = rig.add(prompt_of(30), greedy(3)), rig.add(stranger(30, 1), greedy(3))
    for _ in range(2):
        rig.step()
    rig.abort(before)
    rig.step()
    assert after.finished is not None
    assert rig.engine.abort(after.request.id) == []
    assert before.samples[0].finish == "abort"
    stats = rig.engine.stats()
    assert (stats.aborts, stats.finished) == (1, 1)
    rig.expect_end(before)


@each_index
@pytest.mark.parametrize("policy", ORDERS)
def test_six_with_a_pool_for_three_are_pushed_back_and_all_finish(kind: Kind, policy: OrderName) -> None:
    """AB-06."""
    rig = ReportRig(kind, 400, policy=policy)
    for i in range(6):
        rig.add(prompt_of(40) + stranger(10, i), greedy(100))
    rig.run()
    assert rig.engine.stats().preemptions > 0
    rig.expect_end()


@each_index
def test_growth_of_one_that_pushes_back_all_others_runs_no_empty_batch(kind: Kind) -> None:
    """AB-07. Two that fill the pool to the last page; the runner refuses empty work."""
    rig = ReportRig(kind, 64, chunk=64)
    for i in range(3):
        rig.add(stranger(31, i), greedy(30))
    rig.run()
    assert rig.engine.stats().preemptions > 0
    rig.expect_end()


@each_index
def test_one_alone_that_would_outgrow_the_pool_ends_with_a_reason_and_the_next_is_served(kind: Kind) -> None:
    """AB-08. Refused at the door with the numbers, or ended by length where no number was asked for."""
    rig = ReportRig(kind, 160)
    with pytest.raises(ContextLengthError, match="the KV pool holds 160 tokens"):
        rig.add(prompt_of(128), greedy(400))
    log = rig.ask(prompt_of(128), greedy(None))
    assert (len(log.samples[0].tokens), log.samples[0].finish) == (33, "length")
    rig.ask(stranger(128, 1), greedy(5))
    rig.expect_end(log)


@each_index
@pytest.mark.parametrize("params", [greedy(30), SamplingParams(n=3, best_of=4, max_tokens=6, seed=1)])
def test_abort_at_every_step_leaves_no_lease(kind: Kind, params: SamplingParams) -> None:
    """K 9. Queued, between chunks, decoding, pushed back: one rig, the pool never starts clean."""
    rig = ReportRig(kind, 128, chunk=16, max_running=3)
    gone = []
    for steps in range(0, 30, 3):
        rig.add(prompt_of(40) + stranger(5, steps), greedy(9))
        victim = rig.add(prompt_of(33) + stranger(20, 100 + steps), params)
        for _ in range(steps):
            rig.step()
        if victim.finished is None:
            rig.abort(victim)
            gone.append(victim)
    rig.run()
    assert len(gone) > 3
    rig.expect_end(*gone)
