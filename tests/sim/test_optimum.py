from __future__ import annotations

import random
from functools import cache
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.config import CacheConfig, EvictionName
from sapwood.sim import Trace
from sapwood.sim.optimum import Optimum
from sapwood.sim.replay import replay
from sim.small import UNIT, paths, trace_of, traces

Kept = frozenset[tuple[int, ...]]


def best_by_trying_everything(trace: Trace, capacity: int, *, beside: bool) -> int:
    """Over every choice of what to keep, of the blocks held and those of the request, in whole prefixes."""
    requests = [row for row in paths(trace) if not beside or len(row) <= capacity]

    def choices(blocks: Kept, room: int) -> set[Kept]:
        sets = {Kept()}
        for block in sorted(blocks, key=len):
            sets |= {
                kept | {block}
                for kept in sets
                if len(kept) < room and (len(block) == 2 or block[:-1] in kept)
            }
        return sets

    @cache
    def best(index: int, held: Kept) -> int:
        if index == len(requests):
            return 0
        row = requests[index]
        hits = next((depth for depth, block in enumerate(row) if block not in held), len(row))
        return hits + max(best(index + 1, kept) for kept in after(held, row))

    def after(held: Kept, row: list[tuple[int, ...]]) -> set[Kept]:
        if not beside:
            return choices(held | frozenset(row), capacity)
        # While it runs its own blocks are all there; what else stays, in whole prefixes, is chosen before.
        return {
            kept
            for kept in choices(held | frozenset(row), capacity)
            if len(kept | frozenset(row)) <= capacity
        }

    return best(0, Kept())


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("batch", range(10))
def test_on_300_small_trees_it_is_the_best_of_all_choices(batch: int, beside: bool) -> None:
    for seed in range(30 * batch, 30 * batch + 30):
        draw = random.Random(seed)
        prompts = [[draw.randint(0, 1) for _ in range(draw.randint(0, 3))] for _ in range(draw.randint(1, 6))]
        trace, capacity = trace_of(*prompts), draw.randint(1, 5)
        found = Optimum(trace, beside=beside).matched(capacity * UNIT)
        assert int(found.sum()) == best_by_trying_everything(trace, capacity, beside=beside), seed


def test_it_keeps_what_comes_back_first_and_passes_by_what_never_does() -> None:
    # 9 8 7 6 are never used again; lru would give up 1 2 for them.
    trace = trace_of([1, 2], [9, 8], [7, 6], [1, 2])
    assert Optimum(trace).matched(2 * UNIT).tolist() == [0, 0, 0, 2]
    # Of 3 and 4, 4 comes back first.
    assert Optimum(trace_of([3], [4], [4], [3])).matched(UNIT).tolist() == [0, 0, 1, 0]


def test_a_request_that_needs_room_while_it_runs_leaves_less_to_others() -> None:
    trace = trace_of([1, 2], [9, 8], [1, 2])
    assert Optimum(trace, beside=True).matched(3 * UNIT).tolist() == [0, 0, 1]
    assert Optimum(trace).matched(3 * UNIT).tolist() == [0, 0, 2]


def test_what_is_longer_than_the_cache_is_refused_only_if_it_needs_room() -> None:
    trace = trace_of([1, 2, 3], [1, 2, 3])
    assert Optimum(trace, beside=True).matched(2 * UNIT).tolist() == [0, 0]
    assert Optimum(trace).matched(2 * UNIT).tolist() == [0, 2]


@given(traces(), st.integers(1, 8))
@settings(max_examples=50)
def test_no_policy_beats_it(trace: Trace, capacity: int) -> None:
    best = int(Optimum(trace, beside=True).matched(capacity * UNIT).sum())
    assert best <= Optimum(trace).matched(capacity * UNIT).sum()
    for policy in get_args(EvictionName):
        found = replay(trace, capacity * UNIT, CacheConfig(eviction_policy=policy))
        assert found.matched.sum() <= best
