"""Room for replies that nobody named."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.config import CacheConfig
from sapwood.errors import UsageError
from sapwood.sim import Trace, TraceRequest, curves
from sapwood.sim.replay import replay
from sapwood.sim.replies import with_replies
from sapwood.sim.stack import LruStack

UNIT = 4


def request(at: float, names: list[int], output: int, prompt: int | None = None) -> TraceRequest:
    known = UNIT * len(names) if prompt is None else prompt
    return TraceRequest(at, known, output, np.array(names, np.int32), known, int(at))


def test_a_reply_has_blocks_of_its_own_without_its_last_token() -> None:
    rows = [
        request(0, [7, 8], 9),
        request(1, [7], 5),
        request(2, [7, 9], 3, prompt=6),
        request(3, [7, 9], 4, prompt=6),
    ]
    stored = with_replies(Trace.of("t", UNIT, rows))
    assert [row.names.tolist() for row in stored] == [[7, 8, 10, 11], [7, 12], [7, 9], [7, 9, 13]]
    assert stored.known_tokens.tolist() == [16, 8, 8, 9]


def test_a_trace_that_names_all_of_it_is_itself() -> None:
    named = Trace.of(
        "t", UNIT, [TraceRequest(0.0, 4, 5, np.array([1, 2], np.int32), 8, 0), request(1, [], 1, prompt=1)]
    )
    assert with_replies(named) is not None
    whole = Trace.of("t", UNIT, [TraceRequest(0.0, 4, 5, np.array([1, 2], np.int32), 8, 0)])
    assert with_replies(whole) is whole


def test_of_a_request_without_a_name_nothing_is_stored() -> None:
    rows = [request(0, [1], 9), TraceRequest(1.0, 400, 9, np.empty(0, np.int32), 0, 1)]
    assert np.diff(with_replies(Trace.of("t", UNIT, rows)).offsets).tolist() == [3, 0]


def test_replies_push_prompts_out_but_not_from_the_optimum() -> None:
    """Two prompts of two blocks fit beside each other into four, their replies of two blocks do not."""
    rows = [request(0, [1, 2], 9), request(1, [3, 4], 9), request(2, [1, 2], 9)]
    for output, hits in ((9, 0), (1, 7)):
        trace = Trace.of("t", UNIT, [request(row.arrival, row.names.tolist(), output) for row in rows])
        for point in curves(trace, [4 * UNIT], ("lru", "default", "fifo", "blocks"), workers=1):
            assert point.reused_tokens == hits, point
        (best,) = curves(trace, [4 * UNIT], ("optimum",), workers=1)
        assert best.reused_tokens == 7
    (short,) = curves(Trace.of("t", UNIT, rows), [3 * UNIT], ("lru",), workers=1)
    assert short.refused == 3


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=4), st.integers(0, 12)),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 10),
)
def test_the_stack_counts_them_as_the_cache_does(rows: list[tuple[list[int], int]], blocks: int) -> None:
    stored = with_replies(
        Trace.of("t", UNIT, [request(at, names, output) for at, (names, output) in enumerate(rows)])
    )
    found = replay(stored, blocks * UNIT, CacheConfig(eviction_policy="lru")).matched
    assert LruStack(stored).matched(blocks * UNIT).tolist() == found.tolist()


def test_names_too_large_to_have_others_above_them_are_told_by_path() -> None:
    rows = [request(0, [2**31 - 2, 5], 5), request(1, [2**31 - 2], 5)]
    stored = with_replies(Trace.of("t", UNIT, rows))
    first, second = (row.names.tolist() for row in stored)
    assert first[0] == second[0]
    assert len({*first, *second}) == 4
    assert max(first + second) < 10


def test_more_blocks_than_there_are_names_are_told() -> None:
    with pytest.raises(UsageError, match="more blocks than can be told apart"):
        with_replies(Trace.of("t", 1, [TraceRequest(0.0, 1, 2**31, np.array([1], np.int32), 1, 0)]))
