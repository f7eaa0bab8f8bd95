"""Reports of starvation, duplicate work and lost reservations (kind 10)."""

from __future__ import annotations

import random

import pytest

from engine.reports import ORDERS, Kind, ReportRig, each_index, stranger
from engine.rig import Log, greedy, prompt_of
from sapwood.config import OrderName
from sapwood.errors import ContextLengthError
from sapwood.plan import StepPlan
from sapwood.types import SamplingParams, SeqId


@each_index
@pytest.mark.parametrize("burst", [1, 6])
def test_a_cold_request_among_an_endless_stream_of_hot_ones(kind: Kind, burst: int) -> None:
    """SC-01 and K 7. Served before the stated bound: patience + chunk + running · longest tokens of later work."""
    rig = ReportRig(kind, 2048, chunk=32, max_running=2, policy="default", patience=300)
    hot = prompt_of(192)
    rig.ask(hot, greedy(1))
    rig.add(hot + stranger(20, 1), greedy(4))
    rig.step()
    cold = rig.add(stranger(100, 999), greedy(2))
    before, number = rig.runner.computed_tokens, 2
    while cold.started is None:
        while rig.engine.stats().waiting < 1 + burst:
            rig.add(hot + stranger(20, number), greedy(4))
            number += 1
        rig.step()
    # Of what was computed since, the step in which it began is its own too.
    assert rig.runner.computed_tokens - before <= 300 + 32 + 2 * 216 + 32
    rig.run()
    rig.expect_end()


@each_index
def test_a_prompt_of_the_pool_and_one_token_more_or_less(kind: Kind) -> None:
    """SC-02. What can run runs, what cannot is refused at the door with both numbers; the next one is served."""
    rig = ReportRig(kind, 320)
    for length in (319, 320):
        rig.ask(stranger(length, length), greedy(1))
    for length, answer in ((320, 2), (321, 1), (321, 0)):
        with pytest.raises(ContextLengthError, match=rf"{length} tokens .* holds 320 tokens"):
            rig.add(stranger(length, length), greedy(answer))
    rig.ask(stranger(20, 3), greedy(4))
    rig.expect_end()


@each_index
@pytest.mark.parametrize("policy", ORDERS)
def test_light_ones_pass_a_heavy_one_that_does_not_fit_and_it_still_gets_in(
    kind: Kind, policy: OrderName
) -> None:
    """SC-03. The head of the queue needs four fifths of the pool, half of it is free."""
    rig = ReportRig(kind, 320, policy=policy)
    rig.add(stranger(130, 1), greedy(30))
    rig.step()
    heavy = rig.add(stranger(250, 2), greedy(5))
    light = [rig.add(stranger(20, 10 + i), greedy(4)) for i in range(10)]
    while heavy.started is None:
        rig.step()
    assert sum(log.started is not None for log in light) >= 3
    rig.run()
    rig.expect_end()


@each_index
@pytest.mark.parametrize("chunk", [512, 4096])
def test_eight_agents_with_one_long_prefix_pay_for_it_once(kind: Kind, chunk: int) -> None:
    """SC-04. 2000 shared tokens, which are 125 whole pages of 16, and 20 of its own for each."""
    rig = ReportRig(kind, 8192, chunk=chunk, context=8192, policy="default")
    logs = [rig.add(prompt_of(2000) + stranger(20, i), greedy(1)) for i in range(8)]
    rig.run()
    assert rig.runner.computed_tokens == 2000 + 8 * 20
    assert sorted(log.usage.reused for log in logs) == [0] + [2000] * 7
    rig.expect_end()


class Broken:
    """Raises, or fails all sequences, in the given steps."""

    def __init__(self, raises: bool, *steps: int) -> None:
        self._raises, self._steps = raises, steps

    def __call__(self, plan: StepPlan) -> frozenset[SeqId]:
        if plan.step not in self._steps:
            return frozenset()
        if self._raises:
            raise RuntimeError("the device fell over")
        return frozenset(work.seq for work in plan.works)


@each_index
@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("step", [1, 2, 4])
def test_what_a_failed_request_had_reserved_is_there_at_once(kind: Kind, raises: bool, step: int) -> None:
    """SC-06. It fails in its first chunk, its second, or while it decodes; five more are admitted at once."""
    rig = ReportRig(kind, 160, chunk=100, hook=Broken(raises, step))
    failed = rig.add(stranger(150, 1), greedy(5))
    for _ in range(step):
        rig.step()
    assert failed.finished is not None
    assert failed.finished.error is not None
    books = rig.cache.books()
    assert (books.leased, books.private) == (0, 0)
    logs = [rig.add(stranger(10, 10 + i), greedy(4)) for i in range(5)]
    rig.step()
    assert all(log.started is not None for log in logs)
    rig.run()
    rig.expect_end(failed)


@each_index
@pytest.mark.parametrize("policy", ORDERS)
def test_twenty_equal_requests_with_a_pool_for_one_and_a_fifth(kind: Kind, policy: OrderName) -> None:
    """SC-07. Nobody is pushed back for ever, and little is done twice."""
    rig = ReportRig(kind, 80, chunk=16, policy=policy)
    for i in range(20):
        rig.add(stranger(34, i), greedy(30))
    rig.run()
    assert rig.runner.computed_tokens < 2 * 20 * 64
    rig.expect_end()


# ---- behaviours that peers check from end to end -----------------------------------------------------------


@each_index
@pytest.mark.parametrize("policy", ["fcfs", "default"])
def test_random_prompts_from_a_tree_of_prefixes_in_a_small_pool(kind: Kind, policy: OrderName) -> None:
    """Peers' stress (I 116): chunks, pushed back or not, every answer right and every page accounted for."""
    rng = random.Random(2)
    rig = ReportRig(kind, 256, chunk=48, max_running=6, policy=policy)
    tree = [prompt_of(10)]
    for number in range(60):
        tree.append(rng.choice(tree) + stranger(rng.randrange(1, 30), number))
    for number in range(30):
        prompt = rng.choice(tree)[:120] + stranger(rng.randrange(1, 9), 1000 + number)
        params = SamplingParams(temperature=1.0, seed=number, max_tokens=rng.randrange(1, 60))
        rig.add(prompt, params)
        for _ in range(rng.randrange(4)):
            rig.step()
    rig.run()
    assert rig.engine.stats().preemptions > 0
    rig.expect_end()


@each_index
def test_each_turn_of_a_conversation_reuses_all_whole_pages_of_the_turns_before(kind: Kind) -> None:
    """PX-12, and peers' multi-turn test (I 117 and 119): eight clients, six rounds; no length fills its pages."""
    rig = ReportRig(kind, 8192, chunk=128)
    said = [stranger(29, client) for client in range(8)]
    for turn in range(6):
        logs = [rig.add(prompt, greedy(17)) for prompt in said]
        rig.run()
        for log in logs:
            assert log.usage.reused == (kind.whole(len(log.request.prompt) - 30) if turn else 0)
        said = [follow_up(log, turn) for log in logs]
    rig.expect_end()


def follow_up(log: Log, turn: int) -> tuple[int, ...]:
    """The answer, its last token included though it was never fed, and 29 tokens more."""
    return log.request.prompt + log.samples[0].tokens + stranger(29, 50 + turn)


@each_index
def test_what_a_request_that_was_pushed_back_reads_again_is_no_hit(kind: Kind) -> None:
    """US-04, and peers' metric (I 115)."""
    rig = ReportRig(kind, 112)
    logs = [rig.add(stranger(30, i), greedy(50)) for i in range(3)]
    rig.run()
    stats = rig.engine.stats()
    assert stats.preemptions > 0
    assert (stats.prompt_tokens, stats.reused_tokens) == (90, 0)
    assert all(log.usage.reused == 0 for log in logs)
    rig.expect_end()


@each_index
def test_a_request_that_waits_fifty_steps_for_room_counts_its_lookup_once(kind: Kind) -> None:
    """US-05. Its first 48 tokens are cached all the while."""
    rig = ReportRig(kind, 192)
    rig.ask(prompt_of(48), greedy(1))
    rig.add(stranger(34, 1), greedy(62))
    rig.step()
    before = rig.engine.stats()
    waiting = rig.add(prompt_of(48) + stranger(124, 2), greedy(2))
    steps = 0
    while waiting.started is None:
        now = rig.engine.stats()
        assert (now.prompt_tokens, now.reused_tokens) == (before.prompt_tokens, before.reused_tokens)
        assert now.missed_tokens == before.missed_tokens
        rig.step()
        steps += 1
    assert steps > 50
    after = rig.engine.stats()
    assert after.prompt_tokens - before.prompt_tokens == 172
    assert after.reused_tokens - before.reused_tokens == waiting.started.reused == 48
    rig.run()
    rig.expect_end()
