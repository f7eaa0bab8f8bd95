"""Replays and the optimum, on traces small enough to be judged by hand or by trying everything."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from bench.cache.optimum import optimal_hits
from bench.cache.trace_replay import POLICIES, hits_by_policy, replay, rows
from bench.traces import BLOCK_TOKENS, BUNDLED, Trace, TraceRequest, load_trace


def trace_of(*prompts: Sequence[int]) -> Trace:
    """Each prompt is a list of block ids, all blocks full."""
    requests = [
        TraceRequest(float(at), BLOCK_TOKENS * len(blocks), np.array(blocks, np.int32))
        for at, blocks in enumerate(prompts)
    ]
    return Trace("made up", requests)


def hit_blocks(trace: Trace, capacity: int) -> int:
    return replay(trace, capacity, "lru") // BLOCK_TOKENS


def test_lru_keeps_what_was_used_last() -> None:
    assert hit_blocks(trace_of([1, 2], [3, 4], [1, 2], [3, 4]), capacity=4) == 4
    assert hit_blocks(trace_of([1, 2], [3, 4], [5, 6], [1, 2]), capacity=4) == 0
    assert hit_blocks(trace_of([1, 2], [1, 2, 3], [1, 2, 4], [1, 2, 3]), capacity=4) == 7


def test_a_request_longer_than_the_cache_misses_and_disturbs_nothing() -> None:
    assert hit_blocks(trace_of([1, 2], [1, 2, 3, 4], [1, 2]), capacity=3) == 2


def test_a_partial_last_block_counts_with_its_own_tokens() -> None:
    request = TraceRequest(0.0, BLOCK_TOKENS + 10, np.array([1, 2], np.int32))
    trace = Trace("twice", [request, request])
    assert replay(trace, 4, "lru") == optimal_hits(trace, 4) == BLOCK_TOKENS + 10


def test_the_optimum_keeps_what_comes_back_first_and_passes_by_what_never_does() -> None:
    # 9 8 7 6 are never used again; LRU would give up 1 2 for them.
    trace = trace_of([1, 2], [9, 8], [7, 6], [1, 2])
    assert hit_blocks(trace, capacity=2) == 0
    assert optimal_hits(trace, 2) == 2 * BLOCK_TOKENS
    # Of 3 and 4, 4 comes back first.
    assert optimal_hits(trace_of([3], [4], [4], [3]), 1) == BLOCK_TOKENS


def best_by_trying_everything(trace: Trace, capacity: int) -> int:
    """Over every choice of what to keep, of the blocks held and those of the request, in whole prefixes."""
    parents = {
        block: parent
        for request in trace.requests
        for parent, block in zip([None, *request.blocks.tolist()], request.blocks.tolist(), strict=False)
    }

    def kept_sets(blocks: frozenset[int]) -> set[frozenset[int]]:
        sets = {frozenset[int]()}
        for block in sorted(blocks, key=lambda block: depth(block)):
            sets |= {
                chosen | {block}
                for chosen in sets
                if len(chosen) < capacity and (parents[block] is None or parents[block] in chosen)
            }
        return sets

    def depth(block: int) -> int:
        parent = parents[block]
        return 0 if parent is None else 1 + depth(parent)

    @cache
    def best(index: int, held: frozenset[int]) -> int:
        if index == len(trace.requests):
            return 0
        blocks = trace.requests[index].blocks.tolist()
        hits = next((i for i, block in enumerate(blocks) if block not in held), len(blocks))
        return hits + max(best(index + 1, kept) for kept in kept_sets(held | frozenset(blocks)))

    return best(0, frozenset())


@pytest.mark.parametrize("seed", range(12))
def test_the_optimum_is_the_best_of_all_choices(seed: int) -> None:
    draw = random.Random(seed)
    chains = [[1, 2, 3], [1, 2, 4], [1, 5], [6, 7], [8]]
    prompts = [chain[: draw.randint(1, len(chain))] for chain in draw.choices(chains, k=7)]
    trace, capacity = trace_of(*prompts), draw.randint(1, 4)
    assert optimal_hits(trace, capacity) == BLOCK_TOKENS * best_by_trying_everything(trace, capacity)


def test_no_policy_beats_the_optimum_on_real_traffic() -> None:
    trace = load_trace(BUNDLED[0]).first(300)
    best = optimal_hits(trace, 500)
    hits = hits_by_policy(trace, 500)
    assert list(hits) == list(POLICIES)
    assert 0 < max(hits.values()) <= best < trace.prompt_tokens


def test_the_whole_conversation_trace_gives_the_published_figures() -> None:
    """The figures that every policy is held against: LRU and the optimum at 1M tokens."""
    trace = load_trace(BUNDLED[0])
    blocks = 1_000_000 // BLOCK_TOKENS
    assert replay(trace, blocks, "lru") / trace.prompt_tokens == pytest.approx(0.054, abs=0.0005)
    assert optimal_hits(trace, blocks) / trace.prompt_tokens == pytest.approx(0.258, abs=0.0005)


def test_rows_tell_the_way_to_the_optimum() -> None:
    told = [row.json() for row in rows("quick", BUNDLED[1:])]
    assert told[-1]["scenario"] == "synthetic trace, 0.25M tokens, optimum"
    assert told[-1]["detail"] == {"% of the way from lru to the optimum": 100.0}
    assert all(row["against"] == "lru" and row["ours"] <= told[-1]["ours"] for row in told)
