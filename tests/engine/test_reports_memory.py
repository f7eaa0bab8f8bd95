"""Reports of lost, shared or miscounted pages (kind 2): `check` runs after every step, and the end is always clean."""

from __future__ import annotations

import gc
import random

import numpy as np
import pytest

from engine.reports import Kind, ReportRig, each_eviction, each_index, stranger
from engine.rig import VOCAB, greedy, prompt_of
from sapwood.cache import Namespace, PrefixCache
from sapwood.cache.node import Node
from sapwood.config import CacheConfig
from sapwood.types import SamplingParams

NAMESPACE = Namespace("fake", "", "", "")


@each_eviction
def test_books_at_every_idle_moment_of_random_traffic(kind: Kind) -> None:
    """ME-01. Waves of requests of random length, idle after each."""
    rig = ReportRig(kind, 640, chunk=48, max_running=48)
    rng = random.Random(1)
    for _ in range(8):
        for _ in range(rng.randrange(1, 8)):
            prompt = prompt_of(rng.randrange(60)) + (rng.randrange(VOCAB),) * rng.randrange(1, 40)
            rig.add(prompt, greedy(rng.randrange(1, 30)))
        rig.run()
        books = rig.cache.books()
        assert (books.leased, books.private, books.free + books.tree) == (0, 0, books.capacity)
    assert rig.engine.stats().evicted_tokens > 0
    rig.expect_end()


@each_index
def test_many_short_requests_at_once_then_idle_and_flushed(kind: Kind) -> None:
    """ME-02."""
    rig = ReportRig(kind, 1024, chunk=256, max_running=256)
    for i in range(256):
        rig.add(stranger(2 + i % 6, i), greedy(1 + i % 3))
    rig.run()
    rig.expect_end()


@each_index
def test_fifty_that_wait_are_cancelled_after_their_lookup_in_a_full_pool(kind: Kind) -> None:
    """ME-03."""
    rig = ReportRig(kind, 64, chunk=32, policy="default")
    rig.ask(prompt_of(30), greedy(1))
    rig.add(prompt_of(30), greedy(30))
    queued = [rig.add(prompt_of(30) + stranger(24, i), greedy(5)) for i in range(50)]
    kept = rig.add(prompt_of(30) + prompt_of(3, salt=77), greedy(5))
    for log in queued:
        rig.step()
        rig.abort(log)
    rig.run()
    rig.expect_solo(kept)
    rig.expect_end(*queued)


@each_index
def test_an_edge_that_is_split_while_one_reads_half_of_it_is_let_go_whole(kind: Kind) -> None:
    """ME-04. Then everything can be evicted."""
    rig = ReportRig(kind, 320, chunk=16)
    rig.ask(prompt_of(100), greedy(1))
    rig.add(prompt_of(50) + prompt_of(20, salt=1), greedy(12))
    rig.step()
    rig.add(prompt_of(60) + prompt_of(20, salt=2), greedy(3))
    rig.run()
    assert rig.cache.books().leased == 0
    rig.ask(prompt_of(319, salt=3), greedy(1))
    assert rig.cache.match(NAMESPACE, np.array(prompt_of(100), np.int32)).tokens <= 1
    rig.expect_end()


@each_eviction
def test_twins_with_long_answers_under_a_flood(kind: Kind) -> None:
    """ME-05. They read the copy that survived, and it is not evicted under them."""
    rig = ReportRig(kind, 512, chunk=32, max_running=4)
    twins = [rig.add(prompt_of(100), greedy(60)) for _ in range(2)]
    while not all(twin.samples for twin in twins):
        rig.step()
    for i in range(10):
        rig.add(stranger(70, i), greedy(2))
    rig.run()
    assert rig.engine.stats().evicted_tokens > 0
    rig.expect_end()


@each_index
def test_twins_that_may_not_follow_one_another_move_to_one_copy(kind: Kind) -> None:
    """ME-05. Scored prompts are all computed; the tree keeps one copy and the tables move to it."""
    rig = ReportRig(kind, 512, chunk=32)
    for _ in range(3):
        rig.add(prompt_of(100), greedy(20, prompt_logprobs=0))
    rig.run()
    assert rig.cache.books().tree == kind.whole(119) // kind.page_size
    rig.expect_end()


@each_index
@pytest.mark.parametrize("chunks", [1, 2, 5])
def test_a_prompt_dropped_between_its_chunks_is_right_when_it_comes_back(kind: Kind, chunks: int) -> None:
    """ME-06. With a flood of thirty others in between."""
    rig = ReportRig(kind, 512, chunk=32)
    dropped = rig.add(prompt_of(256), greedy(5))
    for _ in range(chunks):
        rig.step()
    rig.abort(dropped)
    for i in range(30):
        rig.ask(stranger(8 + i, 100 + i), greedy(2))
    again = rig.ask(prompt_of(256), greedy(5))
    assert again.usage.reused <= 32 * chunks
    rig.expect_end(dropped)


@each_index
def test_all_that_finish_in_one_step_with_every_remainder_of_a_page(kind: Kind) -> None:
    """ME-07. Thirty-two with one prefix, lengths that cover each remainder, all over at the same time."""
    rig = ReportRig(kind, 4096, chunk=2048, max_running=32)
    rig.ask(prompt_of(32), greedy(1))
    logs = [rig.add(prompt_of(32) + stranger(2 + i, i), greedy(4)) for i in range(32)]
    while not any(log.finished for log in logs):
        rig.step()
    assert all(log.finished for log in logs)
    rig.expect_end()


@each_index
def test_a_cancel_after_a_lost_client_ends_a_request_once(kind: Kind) -> None:
    """ME-11."""
    rig = ReportRig(kind, 256, chunk=16)
    keeper, victim = rig.add(prompt_of(40), greedy(20)), rig.add(prompt_of(44), greedy(20))
    for _ in range(6):
        rig.step()
    for _ in range(3):
        rig.abort(victim)
    assert rig.engine.stats().aborts == 1
    rig.run()
    rig.expect_solo(keeper)
    rig.expect_end(victim)


@each_eviction
def test_a_prefix_that_a_long_answer_pushed_out_is_a_miss(kind: Kind) -> None:
    """ME-14. Whatever was evicted is not found under its old tokens; the runner knows what each page holds."""
    rig = ReportRig(kind, 160)
    rig.ask(prompt_of(64), greedy(1))
    rig.ask(prompt_of(64, salt=1), greedy(97))
    assert rig.ask(prompt_of(64), greedy(4)).usage.reused == 0
    rig.expect_end()


@each_eviction
def test_floods_between_repeats_never_give_a_page_of_another(kind: Kind) -> None:
    """ME-14, on and on: samples, long answers and repeats in a pool that turns over again and again."""
    rig = ReportRig(kind, 256, chunk=40, max_running=3)
    rng = random.Random(4)
    for number in range(16):
        salt = rng.randrange(5)
        params = SamplingParams(
            temperature=1.0, seed=number, n=rng.choice([1, 1, 2]), max_tokens=rng.randrange(1, 40)
        )
        rig.add(prompt_of(rng.randrange(1, 90), salt=salt), params)
        for _ in range(rng.randrange(6)):
            rig.step()
    rig.run()
    assert rig.engine.stats().evicted_tokens > 256
    rig.expect_end()


def test_what_was_retained_until_some_far_day_and_is_evicted_leaves_nothing_behind() -> None:
    """ME-10's cause, found here by stress: the list of ends of retentions kept each evicted node alive."""
    cache = PrefixCache(64, CacheConfig())
    before = nodes_alive()
    for number in range(500):
        tokens = np.array([number, 1, 2], np.int32)
        lease = cache.lease(NAMESPACE, tokens)
        cache.grow(lease, 3)
        cache.commit(lease, tokens)
        cache.retain(lease, 50, 1e9 + number)
        cache.release(lease)
        cache.check()
    assert nodes_alive() - before <= 3 * cache.capacity_pages


def nodes_alive() -> int:
    gc.collect()
    return sum(type(each) is Node for each in gc.get_objects())  # isinstance would ask lazy modules
