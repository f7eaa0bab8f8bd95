"""The block-hash prefix cache of the source text, and its queue: what its simulation ran, to the letter.

Where it is not what an engine does, that is kept: the root of a path is touched first and so evicted first, what
follows it then lies there in vain; to ask touches; what is being read may be evicted; and the queue takes the next 32
requests whatever the clock says.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sapwood.cache import Namespace, PrefixCache
from sapwood.config import CacheConfig
from sapwood.sim.cost import CostModel
from sapwood.sim.trace import Names, Trace

Order: TypeAlias = Literal["fcfs", "lpm"]
"""First come, first served; or the longest cached prefix first, of equal ones the first come."""

WINDOW = 32
"""Requests among which the text's queue chooses."""


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """A request, as a cache of blocks sees it: its full ones alone.

    Attributes:
        scope: whose.
        names: int32, of prompt and reply; of a block and all before it.
        asked: how many lie within the prompt.
    """

    scope: int
    names: Names
    asked: int


class BlockCache(Protocol):
    """What the queue needs of a cache. Lengths in blocks."""

    def match(self, blocks: Blocks) -> int:
        """Of the prompt, the leading blocks that are there."""
        ...

    def insert(self, blocks: Blocks) -> None:
        """The request has ended: its prompt and reply are stored."""
        ...


class ListingCache:
    """The text's `PrefixCache`. With a capacity of None it keeps all, and order means nothing."""

    def __init__(self, capacity_blocks: int | None) -> None:
        self._capacity = capacity_blocks
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def match(self, blocks: Blocks) -> int:
        hit = 0
        for key in self._keys(blocks, blocks.asked):
            if key not in self._blocks:
                break
            if self._capacity is not None:
                self._blocks.move_to_end(key)
            hit += 1
        return hit

    def insert(self, blocks: Blocks) -> None:
        keys = self._keys(blocks, len(blocks.names))
        if self._capacity is None:
            self._blocks.update(dict.fromkeys(keys))
            return
        for key in keys:
            self._blocks[key] = None
            self._blocks.move_to_end(key)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)

    def _keys(self, blocks: Blocks, count: int) -> list[int]:
        """Names stand for all before them; the scope is folded in, as the text folds in the adapter."""
        keys: list[int] = (blocks.names[:count] + (np.int64(blocks.scope) << 32)).tolist()
        return keys


class LeafFirst:
    """Our own cache behind the same queue: what nothing follows goes first, and to ask touches nothing."""

    def __init__(self, capacity_blocks: int) -> None:
        self._cache = PrefixCache(capacity_blocks, CacheConfig(eviction_policy="lru"))

    def match(self, blocks: Blocks) -> int:
        return self._cache.match(_namespace(blocks), blocks.names[: blocks.asked]).tokens

    def insert(self, blocks: Blocks) -> None:
        """One that is longer than the cache is not stored."""
        if len(blocks.names) > self._cache.capacity_pages:
            return
        lease = self._cache.lease(_namespace(blocks), blocks.names)
        self._cache.grow(lease, len(blocks.names))
        self._cache.commit(lease, blocks.names)
        self._cache.release(lease)


def in_blocks(trace: Trace) -> list[Blocks]:
    """Its requests, in order. What fills no block is left out."""
    unit = trace.unit_tokens
    return [
        Blocks(row.scope, row.names[: row.known_tokens // unit], row.prompt_tokens // unit) for row in trace
    ]


def serve_window(trace: Trace, cache: BlockCache, order: Order, window: int = WINDOW) -> NDArray[np.int64]:
    """Prompt tokens reused by each request, int64 [n], in the trace's order.

    The queue always holds the next `window` requests: one goes, the next comes in.
    """
    requests = in_blocks(trace)
    reused = np.zeros(len(requests), np.int64)
    waiting: list[int] = []
    coming = iter(range(len(requests)))
    while _fill(waiting, coming, window):
        chosen = waiting.pop(_choice(waiting, requests, cache, order))
        reused[chosen] = cache.match(requests[chosen]) * trace.unit_tokens
        cache.insert(requests[chosen])
    return reused


@dataclass(frozen=True, slots=True, eq=False)
class Timely:
    """What became of requests that were served when they came.

    Attributes:
        reused: int64 [n], prompt tokens, in the trace's order.
        choices: how often more than one was waiting when one was taken.
    """

    reused: NDArray[np.int64]
    choices: int


def serve_on_time(trace: Trace, cache: BlockCache, order: Order, cost: CostModel) -> Timely:
    """The same queue with a clock: it holds what has come, and one after the other is read, alone."""
    requests = in_blocks(trace)
    reused = np.zeros(len(requests), np.int64)
    waiting: list[int] = []
    now, came, choices = 0.0, 0, 0
    while waiting or came < len(requests):
        if not waiting:
            now = max(now, float(trace.arrivals[came]))
        while came < len(requests) and trace.arrivals[came] <= now:
            waiting.append(came)
            came += 1
        choices += len(waiting) > 1
        chosen = waiting.pop(_choice(waiting, requests, cache, order))
        reused[chosen] = cache.match(requests[chosen]) * trace.unit_tokens
        now += cost.prefill_seconds(int(trace.prompt_tokens[chosen]), int(reused[chosen]))
        cache.insert(requests[chosen])
    return Timely(reused, choices)


def _choice(waiting: Sequence[int], requests: Sequence[Blocks], cache: BlockCache, order: Order) -> int:
    """Index in `waiting`."""
    if order == "fcfs":
        return 0
    matches = [cache.match(requests[each]) for each in waiting]
    return matches.index(max(matches))


def _fill(waiting: list[int], coming: Iterator[int], window: int) -> bool:
    """Whether there is anyone to choose from."""
    while len(waiting) < window and (each := next(coming, None)) is not None:
        waiting.append(each)
    return bool(waiting)


def _namespace(blocks: Blocks) -> Namespace:
    return Namespace("", adapter=str(blocks.scope))
