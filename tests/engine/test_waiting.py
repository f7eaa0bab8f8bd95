"""How long one waits for another: short prompts beside long ones, priorities, and abandoned leaders."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.rig import Log, Rig, greedy, prompt_of
from sapwood.config import OrderName
from sapwood.errors import RequestError
from sapwood.types import Request

POLICIES: tuple[OrderName, ...] = ("default", "fcfs", "lpm", "dfs-weight", "priority", "random")


def steps_until(rig: Rig, log: Log) -> int:
    """Steps until its first token is said."""
    for count in range(1, 1000):
        rig.step()
        if log.samples:
            return count
    raise AssertionError("never answered")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("page_size", [1, 16])
def test_a_short_prompt_does_not_wait_for_the_end_of_a_long_one(policy: OrderName, page_size: int) -> None:
    rig = Rig(pool=8192, chunk=64, policy=policy, page_size=page_size, context=8192)
    long = rig.add(prompt_of(3000), greedy(4))
    for _ in range(3):
        rig.step()
    short = rig.add(prompt_of(20, salt=1), greedy(4))
    assert steps_until(rig, short) == 1
    assert not long.samples
    rig.run()
    for log in (long, short):
        rig.expect_solo(log)
    rig.expect_no_leaks()


def test_a_short_prompt_does_not_wait_for_long_ones_that_arrived_before_it() -> None:
    rig = Rig(pool=32768, chunk=64, context=8192)
    long = [rig.add(prompt_of(2000, salt=i), greedy(1)) for i in range(4)]
    short = rig.add(prompt_of(20, salt=9), greedy(1))
    assert steps_until(rig, short) == 1
    rig.run()
    for log in (*long, short):
        rig.expect_solo(log)


def test_a_stream_of_short_prompts_costs_a_long_one_half_the_speed_at_most() -> None:
    rig = Rig(pool=32768, chunk=64, context=8192, max_running=32)
    long = rig.add(prompt_of(1600), greedy(1))
    steps = 0
    while not long.samples:
        for i in range(3):
            rig.add(prompt_of(20, salt=3 * steps + i + 1), greedy(1))
        rig.step()
        steps += 1
    assert steps <= 1600 // 32 + 1
    rig.run()


def test_half_done_prompts_of_equal_length_are_read_one_after_the_other() -> None:
    """Shared evenly, both would be done late."""
    rig = Rig(pool=8192, chunk=64)
    first, second = rig.add(prompt_of(640, salt=1), greedy(1)), rig.add(prompt_of(640, salt=2), greedy(1))
    assert steps_until(rig, first) == 10
    assert steps_until(rig, second) == 10


def test_an_urgent_request_is_answered_at_once_and_the_one_it_pushed_back_as_if_nothing_had_been() -> None:
    rig = Rig(pool=100, policy="priority", chunk=64)
    patient = rig.add(prompt_of(60, salt=1), greedy(30), priority=5)
    for _ in range(10):
        rig.step()
    urgent = rig.add(prompt_of(60, salt=2), greedy(3), priority=1)
    assert steps_until(rig, urgent) == 1
    assert rig.engine.stats().preemptions == 1
    rig.run()
    for log in (patient, urgent):
        rig.expect_solo(log)
    assert rig.engine.stats().prompt_tokens == 120, "read again, but counted once"
    rig.expect_no_leaks()


@given(
    arrivals=st.lists(
        st.tuples(
            st.integers(0, 6),
            st.integers(0, 2),
            st.integers(1, 50),
            st.integers(0, 2),
            st.integers(1, 20),
        ),
        min_size=3,
        max_size=25,
    ),
    pool=st.sampled_from([80, 128, 512]),
    page_size=st.sampled_from([1, 4, 16]),
    chunk=st.sampled_from([8, 64]),
    max_running=st.sampled_from([1, 3, 8]),
)
@settings(max_examples=80)
def test_whoever_is_pushed_back_for_a_better_priority_every_answer_is_the_solo_answer(
    arrivals: list[tuple[int, int, int, int, int]], pool: int, page_size: int, chunk: int, max_running: int
) -> None:
    rig = Rig(pool, page_size=page_size, chunk=chunk, max_running=max_running, policy="priority")
    for pause, priority, length, salt, answer in arrivals:
        rig.add(prompt_of(length, salt=salt), greedy(answer), priority=priority)
        for _ in range(pause):
            rig.step()
    rig.run()
    for log in rig.logs.values():
        rig.expect_solo(log)
    rig.expect_no_leaks()


@pytest.mark.parametrize("priority", [2**31, -(2**31), 10**30])
def test_a_priority_beyond_all_bounds_is_refused(priority: int) -> None:
    rig = Rig(policy="priority")
    with pytest.raises(RequestError, match="'priority' is"):
        rig.engine.add(Request("r", (1,), greedy(), priority=priority), 0.0)
