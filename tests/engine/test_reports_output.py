"""Reports of wrong answers on a cache hit (kind 1): each answer is what the request alone would get."""

from __future__ import annotations

import pytest

from engine.reports import Kind, ReportRig, each_eviction, each_index, stranger
from engine.rig import VOCAB, greedy, prompt_of
from sapwood.config import OrderName
from sapwood.types import SamplingParams


@each_eviction
def test_serial_requests_over_shared_prefixes_in_a_pool_for_half_of_them(kind: Kind) -> None:
    """WO-02. Under each way to evict."""
    rig = ReportRig(kind, 640)
    for number in range(60):
        which = number * number % 10
        rig.ask((*prompt_of(50 + 15 * which, salt=which), number % VOCAB, 5), greedy(3))
        rig.cache.check()
    stats = rig.engine.stats()
    assert stats.evicted_tokens > 0
    assert stats.reused_tokens > 0
    rig.expect_end()


@each_index
def test_an_exact_repeat_of_every_length(kind: Kind) -> None:
    """WO-05. The runner refuses a token that is written where another stands, and history that is not the prefix."""
    rig = ReportRig(kind)
    for length in range(1, 41):
        prompt = prompt_of(length, salt=length)
        rig.flush()
        assert rig.ask(prompt, greedy(1)).usage.reused == 0
        assert rig.ask(prompt, greedy(1)).usage.reused == kind.whole(length - 1)
    rig.expect_end()


@each_index
def test_a_prompt_that_is_cached_to_its_end_computes_at_least_a_token(kind: Kind) -> None:
    """WO-07. Exactly three pages twice, then strict prefixes of them."""
    rig = ReportRig(kind)
    for length in (48, 48, 47, 33, 32, 16, 1):
        log = rig.ask(prompt_of(48)[:length], greedy(4))
        assert log.usage.reused <= length - 1
    rig.expect_end()


@each_index
@pytest.mark.parametrize("tail", [1, 10, 31, 32, 33])
def test_a_tail_shorter_than_the_chunk_leaves_no_empty_chunk(kind: Kind, tail: int) -> None:
    """WO-08. The runner refuses empty work."""
    rig = ReportRig(kind, chunk=32)
    rig.ask(prompt_of(60), greedy(1))
    steps = rig.runner.steps
    log = rig.ask(prompt_of(60) + prompt_of(tail, salt=3), greedy(1))
    assert rig.runner.steps - steps == -(-(60 + tail - log.usage.reused) // 32)
    rig.expect_end()


@each_index
def test_four_pages_twice_then_a_page_more_twice(kind: Kind) -> None:
    """WO-12."""
    rig = ReportRig(kind)
    lengths = (64, 64, 80, 80)
    reused = [rig.ask(prompt_of(length), greedy(1)).usage.reused for length in lengths]
    assert reused == [0, kind.whole(63), 64, kind.whole(79)]
    rig.expect_end()


@each_index
@pytest.mark.parametrize("policy", ["default", "fcfs"])
def test_sixty_uncached_lengths_around_the_chunk(kind: Kind, policy: OrderName) -> None:
    """WO-13."""
    rig = ReportRig(kind, 8192, chunk=64, max_running=16, policy=policy)
    rig.ask(prompt_of(40), greedy(1))
    logs = [rig.add(prompt_of(40) + stranger(30 + i, i), greedy(2)) for i in range(60)]
    rig.run()
    assert all(log.usage.reused >= kind.whole(40) for log in logs)
    rig.expect_end()


@each_index
def test_writers_that_start_inside_one_page_do_not_meet(kind: Kind) -> None:
    """WO-14. The runner refuses a page that one writes and another names."""
    rig = ReportRig(kind)
    prompt = prompt_of(20)
    for seed in range(4):
        rig.add(prompt, SamplingParams(temperature=1.0, seed=seed, max_tokens=20))
    rig.add(prompt, SamplingParams(temperature=1.0, seed=9, n=4, max_tokens=20))
    rig.run()
    for salt in range(1, 6):
        rig.add(prompt + prompt_of(15, salt=salt), greedy(5))
    rig.run()
    rig.expect_end()


@each_index
@pytest.mark.parametrize("backwards", [False, True])
def test_scores_of_prompts_in_two_orders(kind: Kind, backwards: bool) -> None:
    """LP-01. Twenty that overlap, some of them read by others before."""
    rig = ReportRig(kind)
    prompts = [prompt_of(90)[: 4 * i + 3] + prompt_of(i % 5, salt=i + 1) for i in range(20)]
    for number, prompt in enumerate(prompts[::-1] if backwards else prompts):
        if number % 3 == 0:
            rig.ask(prompt, greedy(2))
        for _ in range(2):
            log = rig.ask(prompt, greedy(2, prompt_logprobs=2))
            assert log.scored == (None, *rig.runner.score(prompt, 2))
        assert log.usage.reused == kind.whole(len(prompt) - 1)
    rig.expect_end()


@each_index
@pytest.mark.parametrize("length", [15, 16, 17, 31, 32, 33])
def test_scores_of_a_prompt_that_is_cached_past_a_page(kind: Kind, length: int) -> None:
    """LP-02."""
    rig = ReportRig(kind)
    prompt = prompt_of(length)
    for _ in range(2):
        log = rig.ask(prompt, greedy(1, prompt_logprobs=0))
        assert log.scored == (None, *rig.runner.score(prompt, 0))
    assert log.usage.reused == kind.whole(length - 1)
    assert rig.ask(prompt, greedy(1)).usage.reused == kind.whole(length - 1)
    rig.expect_end()


@each_index
def test_output_logprobs_are_there_though_the_prompts_are_not_asked_for(kind: Kind) -> None:
    """LP-04. `expect_end` compares them with the solo run's."""
    rig = ReportRig(kind)
    for _ in range(2):
        log = rig.ask(prompt_of(40), greedy(6, logprobs=0))
        assert len(log.samples[0].logprobs) == 6
        assert log.scored is None
    rig.expect_end()
