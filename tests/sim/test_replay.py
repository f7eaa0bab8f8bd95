from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.cache import PrefixCache
from sapwood.config import CacheConfig, EvictionName
from sapwood.errors import UsageError
from sapwood.sim import Trace
from sapwood.sim.replay import in_units, replay
from sim.small import UNIT, trace_of, traces

LRU = CacheConfig(eviction_policy="lru")


def found(capacity: int, *prompts: list[int]) -> list[int]:
    matched: list[int] = replay(trace_of(*prompts), capacity * UNIT, LRU).matched.tolist()
    return matched


def test_lru_keeps_what_was_used_last() -> None:
    assert found(4, [1, 2], [3, 4], [1, 2], [3, 4]) == [0, 0, 2, 2]
    assert found(4, [1, 2], [3, 4], [5, 6], [1, 2]) == [0, 0, 0, 0]
    assert found(4, [1, 2], [1, 2, 3], [1, 2, 4], [1, 2, 3]) == [0, 2, 2, 3]


def test_a_request_longer_than_the_cache_is_refused_and_disturbs_nothing() -> None:
    result = replay(trace_of([1, 2], [1, 2, 3, 4], [1, 2]), 3 * UNIT, LRU)
    assert result.matched.tolist() == [0, 0, 2]
    assert result.refused.tolist() == [False, True, False]
    assert result.evicted == 0


def test_scopes_share_nothing() -> None:
    assert replay(trace_of([1], [1], [1], scopes=(0, 1, 0)), 8 * UNIT, LRU).matched.tolist() == [0, 0, 1]


def test_evictions_are_counted() -> None:
    assert replay(trace_of([1, 2], [3, 4]), 3 * UNIT, LRU).evicted == 1


@given(traces(), st.integers(1, 8), st.sampled_from(get_args(EvictionName)))
def test_the_books_are_right_after_each_request(trace: Trace, capacity: int, policy: EvictionName) -> None:
    result = replay(trace, capacity * UNIT, CacheConfig(eviction_policy=policy), prove=PrefixCache.check)
    again = replay(trace, capacity * UNIT, CacheConfig(eviction_policy=policy))
    assert np.array_equal(result.matched, again.matched)
    assert result.evicted == again.evicted
    assert not result.matched[result.refused].any()


def test_a_cache_below_one_block_is_none() -> None:
    with pytest.raises(UsageError, match="holds no block") as raised:
        replay(trace_of([1]), UNIT - 1)
    assert raised.value.hint == f"its blocks have {UNIT} tokens; give at least as many"


def test_what_the_policy_knows_of_lengths_is_in_blocks() -> None:
    config = in_units(CacheConfig(page_size=16, attention_tokens=1000), 512)
    assert (config.page_size, config.attention_tokens) == (1, 2)
    assert in_units(CacheConfig(), 512).attention_tokens is None


def test_memory_beyond_all_that_there_is_costs_nothing() -> None:
    trace = trace_of(*([1, 2, 3 + at % 2] for at in range(6)))
    enough, vast = replay(trace, 100 * UNIT), replay(trace, 10**15)
    assert vast.matched.tolist() == enough.matched.tolist() == [0, 2, 3, 3, 3, 3]
    assert vast.evicted == 0
