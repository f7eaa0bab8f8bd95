from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.cache import Namespace, PrefixCache
from sapwood.config import CacheConfig
from sapwood.errors import UsageError
from sapwood.sim import Trace, pages
from sapwood.sim.pages import in_pages
from sapwood.sim.replay import replay
from sapwood.sim.trace import TraceRequest
from sim.small import trace_of, traces


@given(traces(), st.integers(1, 3))
def test_whole_pages_are_found_as_the_real_cache_finds_them(trace: Trace, per_page: int) -> None:
    """With room for all, so that the pages that a tail takes for a while are not missed elsewhere."""
    paged = in_pages(trace, per_page * trace.unit_tokens)
    cache = PrefixCache(200, CacheConfig(page_size=per_page, eviction_policy="lru"))
    found = []
    for row in trace:
        lease = cache.lease(Namespace(str(row.scope)), row.names)
        found.append(lease.matched // per_page)
        cache.grow(lease, len(row.names))
        cache.commit(lease, row.names)
        cache.release(lease)
    assert replay(paged, 200 * paged.unit_tokens).matched.tolist() == found


def test_what_fills_no_page_has_no_name() -> None:
    trace = trace_of([1, 2, 3], [1, 2, 4], [5], unit=4)
    paged = in_pages(trace, 8)
    assert (paged.unit_tokens, paged.known_tokens.tolist(), paged.offsets.tolist()) == (
        8,
        [8, 8, 0],
        [0, 1, 2, 2],
    )
    assert paged.names[0] == paged.names[1]
    assert paged.prompt_tokens.tolist() == [12, 12, 4]
    assert paged[0].known_tokens == 8


def test_pages_of_the_traces_own_size_drop_a_partial_last_block() -> None:
    row = TraceRequest(0.0, 6, 0, np.array([1, 2], np.int32), 6, 0)
    assert in_pages(Trace.of("one", 4, [row]), 4).names.tolist() == [1]


@given(traces(), st.integers(1, 3))
def test_a_few_requests_at_a_time_are_as_good_as_all_at_once(trace: Trace, per_page: int) -> None:
    whole = in_pages(trace, per_page * trace.unit_tokens)
    with mock.patch.object(pages, "_AT_ONCE", 2):
        parts = in_pages(trace, per_page * trace.unit_tokens)
    assert parts.names.tolist() == whole.names.tolist()


@pytest.mark.parametrize("tokens", [0, 2, 6])
def test_pages_are_made_of_blocks(tokens: int) -> None:
    with pytest.raises(UsageError, match="not made of the blocks"):
        in_pages(trace_of([1]), tokens)
