"""The real scheduler and cache on a virtual clock."""

from __future__ import annotations

import numpy as np
import pytest
from bench.cache.virtual_clock import Arrival, Machine, Report, Simulation
from bench.errors import BenchError

from sapwood.cache import PrefixCache
from sapwood.config import CacheConfig, SchedulerConfig


def machine(pages: int = 100, max_running: int = 32) -> Machine:
    scheduler = SchedulerConfig(schedule_policy="fcfs", max_running=max_running, speculate="off")
    return Machine(pages, CacheConfig(), scheduler, 0.5, 1.0)


def arrival(at: float, prompt: list[int], answer: list[int], after: int | None = None) -> Arrival:
    return Arrival(at, np.array(prompt, np.int32), np.array(answer, np.int32), after)


def proved(simulated: Machine, arrivals: list[Arrival]) -> Report:
    return Simulation(simulated, arrivals, prove=PrefixCache.check).run()


def test_a_request_alone_takes_its_steps() -> None:
    # A step reads 4 tokens, two more feed back one token each.
    report = proved(machine(), [arrival(10.0, [1, 2, 3, 4], [5, 6, 7])])
    assert (report.computed, report.decoded, report.prefilled, report.reused) == (6, 2, 4, 0)
    assert report.first_token_seconds == [3.0]
    assert report.seconds == 10.0 + 3.0 + 2 * 1.5


def test_the_next_turn_finds_the_answer_before_it_and_waits_for_it() -> None:
    first = arrival(0.0, [1, 2, 3, 4], [5, 6, 7])
    second = arrival(1.0, [1, 2, 3, 4, 5, 6, 7, 8], [9], after=0)
    report = proved(machine(), [first, second])
    # The last token drawn was never fed back: 7 and 8 are computed.
    assert (report.reused, report.prefilled) == (6, 4 + 2)
    assert report.seconds == 6.0 + 2.0
    assert report.first_token_seconds == [3.0, 2.0]


def test_tokens_read_again_after_a_preemption_are_prefilled_tokens() -> None:
    arrivals = [arrival(0.0, [10 * n, 10 * n + 1, 10 * n + 2], list(range(8))) for n in range(1, 3)]
    report = proved(machine(pages=12), arrivals)
    assert report.preemptions > 0
    assert report.decoded == 14
    assert report.prefilled > 6


def test_cold_waits_count_what_is_computed_for_those_that_came_later() -> None:
    one, two, three = (arrival(at, [n] * 4, [1]) for n, at in enumerate((0.0, 0.1, 0.2)))
    cold = Arrival(0.15, np.array([8, 8], np.int32), np.array([1], np.int32), cold=True)
    lifo_like = Machine(100, CacheConfig(), SchedulerConfig(schedule_policy="lpm", max_running=1), 0.5, 1.0)
    assert proved(machine(max_running=1), [one, two, three, cold]).cold_waits == [0]
    warm = arrival(0.2, [0] * 4 + [7], [1])
    # Only the last one has a prefix: lpm lets it pass, and one token of it is computed.
    assert proved(lifo_like, [one, cold, warm]).cold_waits == [1]


def test_what_no_such_machine_can_serve_is_an_error() -> None:
    with pytest.raises(BenchError, match="a request of 9 tokens was refused"):
        proved(machine(pages=8), [arrival(0.0, list(range(9)), [1])])
