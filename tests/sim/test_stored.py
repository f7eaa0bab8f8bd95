from __future__ import annotations

from pathlib import Path

import numpy as np

from sapwood.sim import Trace
from sapwood.sim.stored import load_stored, store
from sim.small import trace_of


def test_a_trace_comes_back_as_it_was(tmp_path: Path) -> None:
    rows = list(trace_of([1, 2], [], [3], scopes=(0, 1, 0)))
    trace = Trace.of("of three", 4, rows, ("a", "b"), ("made up",), ("guessed",))
    store(trace, tmp_path)
    back = load_stored(tmp_path)
    for name in Trace.__dataclass_fields__:
        before, after = getattr(trace, name), getattr(back, name)
        if isinstance(before, np.ndarray):
            assert after.dtype == before.dtype
            assert np.array_equal(before, after)
            assert type(after) is np.ndarray
        else:
            assert after == before
