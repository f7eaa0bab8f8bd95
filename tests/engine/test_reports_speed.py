"""Reports of costs that grow with the cache (kind 18, and K 5): counted in executed lines, never in seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

from engine.reports import Kind
from sapwood.cache import Lease, Namespace, PrefixCache

NAMESPACE = Namespace("m")
KINDS = (Kind("radix", 1), Kind("radix", 1, "lru"), Kind("radix", 1, "lfu"), Kind("blocks", 1))
each_kind = pytest.mark.parametrize("kind", KINDS, ids=str)


def lines_of(act: Callable[[], object]) -> int:
    """Lines of Python that a call executes, all it calls included."""
    count = 0

    def trace(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


def store(cache: PrefixCache, tokens: np.ndarray[tuple[int], np.dtype[np.int32]]) -> None:
    lease = cache.lease(NAMESPACE, tokens)
    cache.grow(lease, len(tokens))
    cache.commit(lease, tokens)
    cache.release(lease)


def full_of_short_prompts(kind: Kind, prompts: int) -> PrefixCache:
    """A pool full of unrelated prompts of one page, a few of them used twice, that came within a minute."""
    cache = PrefixCache(prompts, kind.config)
    for number in range(prompts):
        cache.advance(60.0 * number / prompts)
        store(cache, np.array([number], np.int32))
        if number % 10 == 0:
            store(cache, np.array([number], np.int32))
    assert cache.books().free == 0
    return cache


def each_page(cache: PrefixCache, lease: Lease, pages: int, seconds: float) -> list[int]:
    """Evict one page at a time, as a sequence that decodes does; the lines of each."""
    lines = []
    for _ in range(pages):
        cache.advance(cache.now + seconds)
        lines.append(lines_of(lambda: cache.grow(lease, lease.covered + 1)))
    return lines


@each_kind
def test_a_page_costs_about_the_same_among_a_thousand_prompts_and_among_ten_thousand(kind: Kind) -> None:
    """PF-01. Page by page, step by step, at the pace at which they came; a logarithm more is allowed."""
    mean = {}
    for prompts in (1_000, 10_000):
        cache = full_of_short_prompts(kind, prompts)
        lease = cache.lease(Namespace("other"), np.empty(0, np.int32))
        cache.grow(lease, 1)
        lines = each_page(cache, lease, 100, 60.0 / prompts)
        assert cache.books().evicted_tokens == 101
        mean[prompts] = sum(lines) / len(lines)
        cache.check()
    assert mean[10_000] <= 2 * mean[1_000]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_first_page_after_a_pause_costs_no_more_than_others(kind: Kind) -> None:
    """PF-01. No single step pays for all leaves at once, however long nothing was evicted."""
    cache = full_of_short_prompts(kind, 5_000)
    lease = cache.lease(Namespace("other"), np.empty(0, np.int32))
    cache.grow(lease, 1)
    (first,) = each_page(cache, lease, 1, 600.0)
    assert first <= 5_000
    cache.check()


@each_kind
def test_a_page_of_a_wide_and_deep_tree_costs_no_walk(kind: Kind) -> None:
    """PF-02. Branches of a hundred nodes each, on which others have stopped everywhere; a page at a time."""
    mean = {}
    for branches in (8, 40):
        cache = PrefixCache(branches * 100, kind.config)
        for branch in range(branches):
            tokens = np.array([branch, *range(99)], np.int32)
            stops = [cache.lease(NAMESPACE, tokens)]
            cache.grow(stops[0], 100)
            for end in range(1, 101):
                cache.commit(stops[0], tokens[:end])
                stops.append(cache.lease(NAMESPACE, tokens[:end]))
            for lease in stops:
                cache.release(lease)
        lease = cache.lease(Namespace("other"), np.empty(0, np.int32))
        cache.grow(lease, 1)
        lines = each_page(cache, lease, 100, 0.005)
        mean[branches] = sum(lines) / len(lines)
        cache.check()
    assert mean[40] <= 2 * mean[8]


@each_kind
def test_evicting_gives_no_more_than_was_missing(kind: Kind) -> None:
    """K 5. Whatever the policy, not one page more."""
    cache = full_of_short_prompts(kind, 500)
    lease = cache.lease(Namespace("other"), np.empty(0, np.int32))
    for length in (1, 2, 9, 10, 200, 499, 500):
        cache.grow(lease, length)
        assert cache.books().evicted_tokens == length
        cache.check()
    assert cache.room() == 0
