from __future__ import annotations

import numpy as np
import pytest

from sapwood.errors import UsageError
from sapwood.sim import TraceRequest
from sim.small import trace_of

NAMES = np.array([1, 2], np.int32)


def test_some_of_the_requests() -> None:
    trace = trace_of([1, 2], [], [3], [4, 5, 6], scopes=(0, 1, 0, 1))
    some = trace.where(np.array([True, True, False, True]))
    assert [row.names.tolist() for row in some] == [[1, 2], [], [4, 5, 6]]
    assert (some.arrivals.tolist(), some.scopes.tolist()) == ([0.0, 1.0, 3.0], [0, 1, 1])
    assert (some.name, some.unit_tokens, some.scope_names) == (
        trace.name,
        trace.unit_tokens,
        trace.scope_names,
    )
    assert len(trace.where(np.zeros(4, np.bool_))) == 0


def test_names_may_end_before_the_prompt_does_and_go_on_into_the_reply_but_no_further() -> None:
    for known in (0, 7, 8):
        assert TraceRequest(0.0, 7, 1, NAMES, known, 0).known_tokens == known
    with pytest.raises(UsageError, match=r"names cover 9 tokens of a request of 7 \+ 1"):
        TraceRequest(0.0, 7, 1, NAMES, 9, 0)


@pytest.mark.parametrize("arrival", [float("nan"), float("inf"), float("-inf")])
def test_a_request_comes_at_some_time(arrival: float) -> None:
    with pytest.raises(UsageError, match=r"a request at -?(nan|inf) s"):
        TraceRequest(arrival, 7, 1, NAMES, 7, 0)
