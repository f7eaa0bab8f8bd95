"""The text's cache against a list that is searched and shifted; its queue by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from sapwood.sim.chat import ChatWorkload, synthetic_chat
from sapwood.sim.flops import FlopCost
from sapwood.sim.hardware import hardware_named
from sapwood.sim.known_models import shape_named
from sapwood.sim.listing import (
    BlockCache,
    Blocks,
    LeafFirst,
    ListingCache,
    Order,
    in_blocks,
    serve_on_time,
    serve_window,
)
from sapwood.sim.trace import Trace, TraceRequest

COST = FlopCost(shape_named("llama-3-8b"), hardware_named("h100"))
CHAT = ChatWorkload(conversations=25, unit_tokens=16, adapters=2)


class NaiveCache:
    """The most recently used last."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.held: list[tuple[int, int]] = []

    def match(self, blocks: Blocks) -> int:
        for hit, name in enumerate(blocks.names[: blocks.asked].tolist()):
            if (blocks.scope, name) not in self.held:
                return hit
            self._touch((blocks.scope, name))
        return blocks.asked

    def insert(self, blocks: Blocks) -> None:
        for name in blocks.names.tolist():
            self._touch((blocks.scope, name))
        del self.held[: max(0, len(self.held) - self.capacity)]

    def _touch(self, key: tuple[int, int]) -> None:
        if key in self.held:
            self.held.remove(key)
        self.held.append(key)


def blocks(*names: int, asked: int | None = None, scope: int = 0) -> Blocks:
    return Blocks(scope, np.array(names, np.int32), len(names) if asked is None else asked)


def trace_of(*rows: tuple[float, list[int], int]) -> Trace:
    """Arrival, names and how many of them are prompt, in blocks of 16 tokens."""
    return Trace.of(
        "by hand",
        16,
        [
            TraceRequest(
                at, 16 * asked, 16 * (len(names) - asked), np.array(names, np.int32), 16 * len(names), n
            )
            for n, (at, names, asked) in enumerate(rows)
        ],
    )


@pytest.mark.parametrize("order", ["fcfs", "lpm"])
@pytest.mark.parametrize("capacity", [1, 100, 300, 600])
def test_it_does_what_a_list_does(order: Order, capacity: int) -> None:
    trace = synthetic_chat(replace(CHAT, conversations=6), capacity)
    ours = serve_window(trace, ListingCache(capacity), order, window=4)
    assert ours.tolist() == serve_window(trace, NaiveCache(capacity), order, window=4).tolist()


def test_without_a_bound_it_is_one_that_never_fills() -> None:
    trace = synthetic_chat(CHAT, 1)
    unbounded = serve_window(trace, ListingCache(None), "lpm")
    assert unbounded.tolist() == serve_window(trace, ListingCache(10**6), "lpm").tolist()


def test_the_root_goes_first_and_what_follows_lies_there_in_vain() -> None:
    cache = ListingCache(4)
    cache.insert(blocks(1, 2, 3, 4))
    cache.insert(blocks(9))
    assert cache.match(blocks(1, 2, 3, 4)) == 0
    assert cache.match(blocks(2, 3, 4)) == 3


def test_our_own_gives_up_the_leaf_first() -> None:
    cache = LeafFirst(4)
    cache.insert(blocks(1, 2, 3, 4))
    cache.insert(blocks(9))
    assert cache.match(blocks(1, 2, 3, 4)) == 3


def test_our_own_does_not_store_what_is_longer_than_it() -> None:
    cache = LeafFirst(2)
    cache.insert(blocks(1))
    cache.insert(blocks(2, 3, 4))
    assert (cache.match(blocks(1)), cache.match(blocks(2, 3, 4))) == (1, 0)


@pytest.mark.parametrize(
    "make",
    [lambda: ListingCache(None), lambda: ListingCache(100), lambda: LeafFirst(100)],
    ids=["endless", "listing", "leaf-first"],
)
def test_adapters_share_nothing(make: Callable[[], BlockCache]) -> None:
    cache = make()
    cache.insert(blocks(1, 2, scope=0))
    assert (cache.match(blocks(1, 2, scope=0)), cache.match(blocks(1, 2, scope=1))) == (2, 0)


def test_to_ask_touches() -> None:
    cache = ListingCache(2)
    cache.insert(blocks(1))
    cache.insert(blocks(2))
    cache.match(blocks(1))
    cache.insert(blocks(3))
    assert (cache.match(blocks(1)), cache.match(blocks(2))) == (1, 0)


def test_only_whole_blocks_count_and_the_prompts_end_is_where_asking_ends() -> None:
    trace = Trace.of("x", 16, [TraceRequest(0.0, 40, 20, np.array([5, 6, 7, 8], np.int32), 60, 0)])
    [request] = in_blocks(trace)
    assert (request.names.tolist(), request.asked) == ([5, 6, 7], 2)


def test_first_come_first_served_is_in_the_order_of_the_trace() -> None:
    trace = trace_of((0, [1, 2], 1), (1, [9], 1), (2, [1, 2, 3], 3))
    assert serve_window(trace, ListingCache(None), "fcfs").tolist() == [0, 0, 32]


def test_the_longest_prefix_first_and_of_equal_ones_the_first_come() -> None:
    # The cache holds one request. After the first (all match nothing) the third goes on with it, then the second.
    trace = trace_of((0, [1], 1), (1, [9], 1), (2, [1, 2], 2))
    assert serve_window(trace, ListingCache(1), "fcfs").tolist() == [0, 0, 0]
    assert serve_window(trace, ListingCache(1), "lpm").tolist() == [0, 0, 16]


def test_what_is_beyond_the_window_is_not_chosen() -> None:
    trace = trace_of((0, [1], 1), (1, [9], 1), (2, [1, 2], 2))
    assert serve_window(trace, ListingCache(1), "lpm", window=1).tolist() == [0, 0, 0]


def test_by_the_clock_order_means_nothing_where_nobody_waits() -> None:
    trace = replace(
        synthetic_chat(CHAT, 3), arrivals=np.arange(len(synthetic_chat(CHAT, 3)), dtype=np.float64) * 60
    )
    fcfs, lpm = (serve_on_time(trace, ListingCache(600), order, COST) for order in ("fcfs", "lpm"))
    assert (
        fcfs.reused.tolist() == lpm.reused.tolist() == serve_window(trace, ListingCache(600), "fcfs").tolist()
    )
    assert fcfs.choices == lpm.choices == 0


@pytest.mark.parametrize("order", ["fcfs", "lpm"])
def test_by_the_clock_and_all_at_once_is_a_window_of_all(order: Order) -> None:
    trace = synthetic_chat(CHAT, 4)
    trace = replace(trace, arrivals=np.zeros(len(trace)))
    timely = serve_on_time(trace, ListingCache(600), order, COST)
    assert timely.reused.tolist() == serve_window(trace, ListingCache(600), order, window=len(trace)).tolist()
    assert timely.choices == len(trace) - 1


def test_one_that_comes_while_another_is_read_waits_for_it() -> None:
    read = COST.prefill_seconds(16, 0)
    trace = trace_of((0, [1], 1), (read * 0.4, [9], 1), (read * 0.5, [1, 2], 2), (read * 9, [9], 1))
    timely = serve_on_time(trace, ListingCache(1), "lpm", COST)
    assert (timely.reused.tolist(), timely.choices) == ([0, 0, 16, 16], 1)
