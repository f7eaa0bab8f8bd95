"""In-flight sharing: prompts that arrive together are computed once, and nobody depends on who leads."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.rig import Log, Rig, greedy, prompt_of
from sapwood.config import OrderName
from sapwood.plan import StepPlan
from sapwood.types import SamplingParams, SeqId

POLICIES: tuple[OrderName, ...] = ("default", "fcfs", "lpm", "dfs-weight", "priority", "random")


def once(prompts: list[tuple[int, ...]], page_size: int) -> int:
    """Tokens computed if each whole page of each distinct prefix is computed once, and tails by each."""
    pages = {prompt[:end] for prompt in prompts for end in range(page_size, len(prompt), page_size)}
    tails = sum((len(prompt) - 1) % page_size + 1 for prompt in prompts)
    return len(pages) * page_size + tails


def expect_once(rig: Rig, logs: list[Log], most_twice: int = 0) -> None:
    """Answers of one token: nothing but prompts is computed, and what was not waited for is said."""
    prompts = [log.request.prompt for log in logs]
    for log in logs:
        rig.expect_solo(log)
        assert log.usage.missed.get("in_flight", 0) <= most_twice
    twice = sum(log.usage.missed.get("in_flight", 0) for log in logs)
    assert rig.runner.computed_tokens == once(prompts, rig.cache.page_size) + twice
    assert rig.runner.computed_tokens == sum(len(log.request.prompt) - log.usage.reused for log in logs)
    rig.expect_no_leaks()


@pytest.mark.parametrize("count", [2, 5, 40])
@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("chunk", [7, 64, 512])
def test_equal_prompts_at_once_cost_one(count: int, page_size: int, chunk: int) -> None:
    rig = Rig(pool=8192, page_size=page_size, chunk=chunk)
    logs = [rig.add(prompt_of(97), greedy(1)) for _ in range(count)]
    rig.run()
    expect_once(rig, logs)
    assert sorted(log.usage.reused for log in logs) == [0] + [96] * (count - 1)


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_equal_prompts_that_arrive_while_the_first_is_read_cost_one(page_size: int) -> None:
    rig = Rig(pool=8192, page_size=page_size, chunk=16)
    logs = []
    for _ in range(12):
        logs.append(rig.add(prompt_of(90), greedy(1)))
        rig.step()
    rig.run()
    expect_once(rig, logs)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("chunk", [32, 512])
def test_a_tree_of_prefixes_is_computed_once(policy: OrderName, page_size: int, chunk: int) -> None:
    rig = Rig(pool=8192, page_size=page_size, chunk=chunk, max_running=32, policy=policy)
    branches = [prompt_of(100) + (branch,) * 40 for branch in range(3)]
    logs = [rig.add(branches[i % 3] + (10 + i, *prompt_of(20, salt=i)), greedy(1)) for i in range(12)]
    rig.run()
    # Small chunks leave stretches that are too short to be waited for.
    expect_once(rig, logs, most_twice=15 if chunk == 32 else 0)


def test_a_staircase_of_prefixes_costs_its_longest() -> None:
    rig = Rig(pool=8192, chunk=512, max_running=16)
    logs = [rig.add(prompt_of(16 * stair + 1), greedy(1)) for stair in range(1, 13)]
    rig.run()
    for log in logs:
        rig.expect_solo(log)
    assert rig.runner.computed_tokens == 16 * 12 + 1
    rig.expect_no_leaks()


@pytest.mark.parametrize("policy", POLICIES)
def test_the_unrelated_are_not_held_up(policy: OrderName) -> None:
    rig = Rig(chunk=512, max_running=16, policy=policy)
    logs = [rig.add(prompt_of(60), greedy(3)) for _ in range(5)]
    other = rig.add(prompt_of(30, salt=1), greedy(3))
    rig.step()
    assert other.started is not None
    assert sum(log.started is not None for log in logs) == 1
    rig.run()
    for log in (*logs, other):
        rig.expect_solo(log)


def test_followers_outlive_an_aborted_leader() -> None:
    rig = Rig(chunk=16)
    logs = [rig.add(prompt_of(100), greedy(1)) for _ in range(5)]
    for log in logs[:4]:
        rig.step()
        assert log.started is not None
        rig.abort(log)
    rig.run()
    rig.expect_solo(logs[4])
    assert rig.runner.computed_tokens == 100
    rig.expect_no_leaks()


class FailAt:
    """All that run in the given steps fail."""

    def __init__(self, *steps: int) -> None:
        self._steps = steps

    def __call__(self, plan: StepPlan) -> frozenset[SeqId]:
        return frozenset(work.seq for work in plan.works) if plan.step in self._steps else frozenset()


def test_followers_outlive_failed_leaders() -> None:
    rig = Rig(chunk=40, hook=FailAt(2, 3))
    logs = [rig.add(prompt_of(100), greedy(1)) for _ in range(6)]
    rig.run()
    assert [log.finished is not None and log.finished.error is not None for log in logs] == [True] * 2 + [
        False
    ] * 4
    for log in logs[2:]:
        rig.expect_solo(log)
    # The first 40 by the first, the rest by the third; then the last token of each.
    assert rig.runner.computed_tokens == 100 + 3
    rig.expect_no_leaks()


@pytest.mark.parametrize("page_size", [1, 4])
def test_followers_outlive_a_preempted_leader(page_size: int) -> None:
    rig = Rig(pool=104, page_size=page_size, chunk=8)
    old = rig.add(prompt_of(20, salt=1), greedy(60))
    while not old.samples:
        rig.step()
    logs = [rig.add(prompt_of(76), greedy(6)) for _ in range(4)]
    while rig.engine.stats().preemptions == 0:
        assert not logs[0].samples, "the leader must be preempted while it reads"
        rig.step()
    rig.run()
    for log in (old, *logs):
        rig.expect_solo(log)
    rig.expect_no_leaks()


def test_a_scored_prompt_leads_and_follows_what_is_scored() -> None:
    rig = Rig(chunk=512)
    scored = [rig.add(prompt_of(50), greedy(1, prompt_logprobs=1)) for _ in range(2)]
    follower = rig.add(prompt_of(50), greedy(1))
    rig.run()
    for log in (*scored, follower):
        rig.expect_solo(log)
    assert [log.usage.reused for log in (*scored, follower)] == [0, 49, 49]
    assert rig.runner.computed_tokens == 50 + 1 + 1


def test_without_an_index_all_go_alone() -> None:
    rig = Rig(chunk=512, index="none")
    logs = [rig.add(prompt_of(50), greedy(1)) for _ in range(4)]
    rig.step()
    assert all(log.finished is not None for log in logs)
    assert rig.runner.computed_tokens == 200


def test_samples_of_equal_requests_share_one_prompt() -> None:
    rig = Rig(chunk=512, max_running=32)
    params = SamplingParams(n=3, max_tokens=1, temperature=1.0, seed=1)
    logs = [rig.add(prompt_of(50), params) for _ in range(4)]
    rig.run()
    for log in logs:
        rig.expect_solo(log)
    assert rig.runner.computed_tokens == 50 + 11


prompts = st.builds(
    lambda trunk, branch, tail: prompt_of(trunk) + (branch,) * 17 + tail,
    st.sampled_from([0, 0, 20, 40, 40]),
    st.integers(0, 2),
    st.sampled_from([(1,), (1,), (2, 3, 4), tuple(range(20))]),
)


@given(
    arrivals=st.lists(
        st.tuples(
            st.sampled_from([0, 0, 0, 1, 5]),  # Steps after it.
            prompts,
            st.integers(0, 12),
            st.sampled_from([True, True, True, False]),  # Whether it reads the cache.
            st.sampled_from([None, None, None, 0, 3, 6]),  # Whom to abort, counted from the youngest.
        ),
        min_size=3,
        max_size=25,
    ),
    pool=st.sampled_from([112, 160, 1024]),
    page_size=st.sampled_from([1, 4, 16]),
    chunk=st.sampled_from([5, 16, 256]),
    max_running=st.sampled_from([1, 3, 16]),
    policy=st.sampled_from(POLICIES),
    fail_at=st.integers(1, 40),
)
@settings(max_examples=100)
def test_whoever_leads_every_answer_is_the_solo_answer(
    arrivals: list[tuple[int, tuple[int, ...], int, bool, int | None]],
    pool: int,
    page_size: int,
    chunk: int,
    max_running: int,
    policy: OrderName,
    fail_at: int,
) -> None:
    rig = Rig(
        pool, page_size=page_size, chunk=chunk, max_running=max_running, policy=policy, hook=FailAt(fail_at)
    )
    aborted = set()
    for steps, prompt, answer, reuse, abort in arrivals:
        rig.add(prompt, greedy(answer), reuse=reuse)
        for _ in range(steps):
            rig.step()
        victim = f"r{len(rig.logs) - 1 - (abort or 0)}"
        if abort is not None and victim in rig.logs and rig.logs[victim].finished is None:
            rig.abort(rig.logs[victim])
            aborted.add(victim)
    rig.run()
    for name, log in rig.logs.items():
        assert log.finished is not None
        if name not in aborted and log.finished.error is None:
            rig.expect_solo(log)
    assert (
        sum(log.finished is not None and log.finished.error is not None for log in rig.logs.values())
        <= max_running
    )
    rig.expect_no_leaks()
