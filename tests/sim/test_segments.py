from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from sapwood.sim import Trace, segments
from sapwood.sim.segments import Segments
from sim.small import paths, trace_of, traces


def blocks_and_uses(trace: Trace) -> list[tuple[int, int, int]]:
    """(request, depth, previous request), of each block used before, by looking through everything."""
    last: dict[tuple[int, ...], int] = {}
    found = []
    for request, row in enumerate(paths(trace)):
        found += [(request, depth, last[prefix]) for depth, prefix in enumerate(row) if prefix in last]
        last |= dict.fromkeys(row, request)
    return found


@given(traces())
def test_they_cover_just_the_blocks_that_were_used_before(trace: Trace) -> None:
    them = Segments.of(trace)
    columns = (them.request, them.previous, them.start, them.length)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    covered = [(t, depth, p) for t, p, start, length in rows for depth in range(start, start + length)]
    assert covered == blocks_and_uses(trace)
    assert len({(t, p) for t, p, _, _ in rows}) == len(rows), "a stretch last used together is one segment"
    ends = them.firsts().tolist()
    assert [t for t in range(len(trace)) for _ in range(ends[t], ends[t + 1])] == them.request.tolist()


def test_it_makes_no_difference_in_how_many_parts_a_trace_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    trace = trace_of(*(rng.integers(0, 2, rng.integers(0, 6)).tolist() for _ in range(40)))
    whole = Segments.of(trace)
    monkeypatch.setattr(segments, "_BLOCKS_AT_ONCE", 7)
    monkeypatch.setattr("sapwood.sim.paths._BLOCKS_AT_ONCE", 5)
    parts = Segments.of(trace)
    for column in ("lengths", "request", "previous", "start", "length"):
        assert np.array_equal(getattr(whole, column), getattr(parts, column))
