"""`bench cache`: what the prefix cache itself costs, in microseconds, without a model."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np

from sapwood.cache import Lease, Namespace, PrefixCache

from .document import Output, emit, make_document, tell
from .noise import Moment
from .rows import Measure, Row
from .sizes import Size, sized
from .stats import Pair, median, percentile

SPACE = Namespace("bench")
BRANCH, LEAF = 8, 4
"""Tokens that a thousand leaves share, and tokens of a leaf's own."""
PER_BRANCH = 1000


def run_cache(options: argparse.Namespace) -> int:
    before = Moment.now()
    regime = {"suite": "cache", "size": options.size, "page_size": 1, "index": "radix", "eviction": "lru"}
    emit(
        make_document(regime, list(rows(options.size)), before, options.typed),
        Output(options.out, options.json),
    )
    return 0


def rows(size: Size) -> Iterator[Row]:
    length = sized(size, quick=512, normal=32_768)
    repeats = sized(size, quick=5, normal=500)
    yield _match_row(length, 1, repeats)
    yield _match_row(length, 64, repeats)
    for leaves in sized(size, quick=(10, 100), normal=(1_000, 10_000, 100_000)):
        tell(f"cache with {leaves} leaves")
        cache = _filled(leaves, spare=repeats + 1)
        yield _row(f"commit one token, {leaves:,} leaves", _commits(cache, repeats))
        _exhaust(cache)
        yield _row(f"evict one page, {leaves:,} leaves", _evictions(cache, repeats))


def _match_row(length: int, edges: int, repeats: int) -> Row:
    cut = "1 edge" if edges == 1 else f"{edges} edges"
    tell(f"cache: match of {length} tokens over {cut}")
    cache = PrefixCache(2 * length)
    prompt = np.arange(length, dtype=np.int32)
    lease = cache.lease(SPACE, prompt[:0])
    for end in range(length // edges, length + 1, length // edges):
        _fork(cache, prompt[:end])  # a branch there keeps the run cut in two
        cache.grow(lease, end)
        cache.commit(lease, prompt[:end])
    assert cache.match(SPACE, prompt).tokens == length
    return _row(f"match {length:,} tokens, {cut}", _times(lambda: cache.match(SPACE, prompt), repeats))


def _fork(cache: PrefixCache, prompt: np.ndarray[tuple[int], np.dtype[np.int32]]) -> None:
    other = np.append(prompt, np.int32(-1)).astype(np.int32)
    lease = cache.lease(SPACE, other)
    cache.grow(lease, len(other))
    cache.commit(lease, other)
    cache.release(lease)


def _filled(leaves: int, spare: int) -> PrefixCache:
    branches = -(-leaves // PER_BRANCH)
    cache = PrefixCache(branches * BRANCH + leaves * LEAF + spare)
    for leaf in range(leaves):
        tokens = np.empty(BRANCH + LEAF, np.int32)
        tokens[:BRANCH] = leaf // PER_BRANCH
        tokens[BRANCH:] = 1_000_000 + leaf
        lease = cache.lease(SPACE, tokens)
        cache.grow(lease, len(tokens))
        cache.commit(lease, tokens)
        cache.release(lease)
    return cache


def _commits(cache: PrefixCache, repeats: int) -> list[float]:
    """A sequence that decodes: room for one token, then its commit, as after every step."""
    tokens = np.full(repeats, 7, np.int32)
    lease, done = cache.lease(SPACE, tokens[:0]), iter(range(1, repeats + 1))

    def one() -> None:
        length = next(done)
        cache.grow(lease, length)
        cache.commit(lease, tokens[:length])

    times = _times(one, repeats)
    cache.release(lease)
    return times


def _exhaust(cache: PrefixCache) -> Lease:
    """Takes the free pages, so that every further one must be evicted."""
    lease = cache.lease(SPACE, np.empty(0, np.int32))
    cache.grow(lease, cache.books().free)
    return lease


def _evictions(cache: PrefixCache, repeats: int) -> list[float]:
    lease = cache.lease(SPACE, np.empty(0, np.int32))
    before = cache.books().evicted_tokens
    wanted = iter(range(1, repeats + 1))
    count = min(repeats, cache.room())
    times = _times(lambda: cache.grow(lease, next(wanted)), count)
    assert cache.books().evicted_tokens == before + count
    return times


def _times(function: Callable[[], object], repeats: int) -> list[float]:
    """Microseconds of each call."""
    taken = []
    for _ in range(repeats):
        start = time.perf_counter_ns()
        function()
        taken.append((time.perf_counter_ns() - start) / 1e3)
    return taken


def _row(scenario: str, microseconds: list[float]) -> Row:
    detail = {"p99 µs": percentile(microseconds, 0.99), "repeats": len(microseconds)}
    pairs = [Pair(median(microseconds), None)]
    return Row(scenario, Measure("time", "µs", "lower"), pairs, detail=detail)
