from __future__ import annotations

import numpy as np
import pytest

from sapwood.sim import Trace, TraceRequest
from sapwood.sim.counting import Counting

NAMES = np.array([1, 2, 3], np.int32)


def trace() -> Trace:
    """10 prompt tokens and 2 of the reply in three blocks of 4, the same again, and one of which a block is named."""
    rows = [TraceRequest(0.0, 10, 5, NAMES, 12, 0), TraceRequest(1.0, 10, 0, NAMES, 10, 1)]
    return Trace.of("three", 4, [*rows, TraceRequest(2.0, 8, 0, NAMES[:1], 4, 2)])


@pytest.mark.parametrize(
    ("counting", "matched", "reused"),
    [
        (Counting(), [3, 3, 1], [10, 10, 4]),
        (Counting(), [2, 0, 1], [8, 0, 4]),
        (Counting(last_token=False), [3, 3, 1], [9, 9, 4]),
        (Counting(partial_tail=False), [3, 3, 1], [8, 8, 4]),
        (Counting(last_token=False, partial_tail=False), [2, 3, 1], [8, 8, 4]),
    ],
)
def test_what_of_the_blocks_found_counts(counting: Counting, matched: list[int], reused: list[int]) -> None:
    assert counting.reused_tokens(trace(), np.array(matched)).tolist() == reused


def test_the_last_token_of_a_prompt_of_whole_blocks_is_computed() -> None:
    row = TraceRequest(0.0, 8, 0, NAMES[:2], 8, 0)
    counting = Counting(last_token=False, partial_tail=False)
    assert counting.reused_tokens(Trace.of("one", 4, [row]), np.array([2])).tolist() == [7]


def test_each_definition_says_what_it_is() -> None:
    assert Counting().text() == (
        "prompt tokens found cached, of all prompt tokens; a partial last block counts, the last token too"
    )
    assert (
        Counting(last_token=False, partial_tail=False)
        .text()
        .endswith("whole blocks count, the last token never")
    )
