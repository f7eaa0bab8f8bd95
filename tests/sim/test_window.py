"""The part of a trace that is simulated, and what warms it."""

from __future__ import annotations

import numpy as np

from sapwood.sim import Trace, TraceRequest
from sapwood.sim.window import Window, before, busiest, new_tokens


def trace_of(*rows: tuple[float, int, list[int]]) -> Trace:
    """(arrival, output tokens, names of blocks of 4 tokens)."""
    return Trace.of(
        "t",
        4,
        [
            TraceRequest(at, 4 * len(names), output, np.array(names, np.int32), 4 * len(names), number)
            for number, (at, output, names) in enumerate(rows)
        ],
    )


def test_new_is_what_nobody_asked_before_and_each_prompts_last_token() -> None:
    assert new_tokens(trace_of((0, 3, [1, 2]), (1, 2, [1, 2]), (2, 0, [1, 3]))).tolist() == [11, 3, 4]


def test_the_busiest_window_asks_for_the_most_tokens_a_second() -> None:
    """Two long prompts a second apart, though one repeats the other, and not two short ones at once."""
    long = list(range(10, 15))
    trace = trace_of(
        (0, 1, [1]), (100, 1, long), (101, 1, long), (200, 1, [2, 3]), (200, 1, [4, 5]), (300, 1, [6])
    )
    ones = np.ones(len(trace), np.int64)
    assert busiest(trace, ones, 2) == Window(1, 2)
    assert busiest(trace, ones, 6) == busiest(trace, ones, 10) == Window(0, 6)
    assert busiest(trace, ones, 1) == Window(1, 1)


def test_windows_hold_as_much_work_as_is_allowed_and_one_request_at_least() -> None:
    trace = trace_of(*((float(at), 1, [at]) for at in range(6)))
    work = np.array([1, 1, 1, 9, 1, 1])
    for limit in (2, 3, 8):
        window = busiest(trace, work, limit)
        held = work[window.first : window.first + window.count]
        assert held.sum() <= limit or len(held) == 1
    assert busiest(trace, work, 14) == Window(0, 6)


def test_what_comes_before_brings_so_many_new_tokens() -> None:
    new = np.array([5, 1, 1, 4, 2])
    assert [before(new, 4, tokens) for tokens in (1, 4, 5, 6, 7, 100)] == [3, 3, 2, 1, 0, 0]
    assert before(new, 0, 10) == 0
