"""Traces small enough to be judged by hand or by trying everything."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from sapwood.sim import Trace, TraceRequest

UNIT = 4


def trace_of(*prompts: Sequence[int], unit: int = UNIT, scopes: Sequence[int] = ()) -> Trace:
    """One request a second, each a list of names of whole blocks, without replies."""
    rows = [
        TraceRequest(
            float(at), max(1, unit * len(names)), 0, np.array(names, np.int32), unit * len(names), at, scope
        )
        for at, (names, scope) in enumerate(zip(prompts, scopes or [0] * len(prompts), strict=True))
    ]
    return Trace.of("made up", unit, rows, scope_names=("", "other"))


def traces(most_requests: int = 12, most_blocks: int = 5, names: int = 3) -> st.SearchStrategy[Trace]:
    """Paths over few names, so that they share much; a name says nothing of what came before it."""
    path = st.lists(st.integers(0, names - 1), max_size=most_blocks)
    rows = st.lists(st.tuples(path, st.integers(0, 1)), min_size=1, max_size=most_requests)
    return rows.map(lambda drawn: trace_of(*(row[0] for row in drawn), scopes=[row[1] for row in drawn]))


def paths(trace: Trace) -> list[list[tuple[int, ...]]]:
    """Of each request its prefixes, the scope in front."""
    return [[(row.scope, *row.names[: end + 1].tolist()) for end in range(len(row.names))] for row in trace]
