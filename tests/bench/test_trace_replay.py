"""The case of `bench cache` that replays real traffic; replays, curves and the optimum themselves are in tests/sim."""

from __future__ import annotations

import pytest
from bench.cache.trace_replay import MILLION, rows
from bench.traces import BUNDLED, load_trace

from sapwood.sim import curves


def test_the_whole_conversation_trace_gives_the_published_figures() -> None:
    """The figures that every policy is held against: LRU and the optimum at 1M tokens."""
    lru, best = curves(load_trace(BUNDLED[0]), [MILLION], ("lru", "optimum"))
    assert lru.hit_rate == pytest.approx(0.054, abs=0.0005)
    assert best.hit_rate == pytest.approx(0.258, abs=0.0005)


def test_rows_tell_the_way_to_the_optimum() -> None:
    told = [row.json() for row in rows("quick", BUNDLED[1:])]
    assert told[-1]["scenario"] == "synthetic trace, 0.25M tokens, optimum"
    assert told[-1]["detail"] == {"% of the way from lru to the optimum": 100.0}
    assert all(row["against"] == "lru" and row["ours"] <= told[-1]["ours"] for row in told)
