"""The stack is held against the real cache, request by request."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from sapwood.config import CacheConfig
from sapwood.sim import Trace
from sapwood.sim.replay import replay
from sapwood.sim.stack import LruStack
from sim.small import UNIT, trace_of, traces

LRU = CacheConfig(eviction_policy="lru")
BLOCKS = CacheConfig(prefix_index="blocks")


@given(traces(most_requests=20))
def test_it_says_what_the_real_cache_does_at_every_capacity(trace: Trace) -> None:
    stack = LruStack(trace)
    for capacity in range(UNIT, UNIT * (len(set(trace.names.tolist())) ** 2 + 10), UNIT):
        assert stack.matched(capacity).tolist() == replay(trace, capacity, LRU).matched.tolist()


@pytest.mark.parametrize("seed", range(4))
def test_longer_traces_under_both_indexes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    trace = trace_of(*(rng.integers(0, 3, rng.integers(1, 30)).tolist() for _ in range(200)))
    stack = LruStack(trace)
    for units in (1, 5, 17, 29, 40, 100, 333, 1000, 5000):
        matched = stack.matched(units * UNIT)
        assert np.array_equal(matched, replay(trace, units * UNIT, LRU).matched)
        assert np.array_equal(matched, replay(trace, units * UNIT, BLOCKS).matched)


def test_between_two_knots_the_curve_is_straight() -> None:
    rng = np.random.default_rng(5)
    trace = trace_of(*(rng.integers(0, 2, rng.integers(1, 8)).tolist() for _ in range(60)))
    stack = LruStack(trace)
    knots = set(stack.knots().tolist())
    hits = [int(stack.matched(units * UNIT).sum()) for units in range(stack.longest, 80)]
    for at in range(1, len(hits) - 1):
        if (stack.longest + at) * UNIT not in knots:
            assert hits[at + 1] - hits[at] == hits[at] - hits[at - 1]
    assert sorted(hits) == hits, "more memory is never worse"


def test_a_trace_without_requests() -> None:
    assert len(LruStack(trace_of()).matched(UNIT)) == 0
