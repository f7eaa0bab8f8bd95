"""The hit rate that no eviction policy can exceed: one that knows the future."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from ..traces import Trace


@dataclass(frozen=True, slots=True, order=True)
class _Use:
    """When a block is wanted again, and its place in the prompt. The largest is given up first."""

    next: int
    """Index of the next request that has the block; the number of requests if none has."""
    place: int


def optimal_hits(trace: Trace, capacity_blocks: int) -> int:
    """Prompt tokens found cached if always the block whose next use is farthest goes, or is not taken in.

    This is Belady's MIN (1966) with bypass, on a tree. A block is used whenever one that continues it is, so
    its next use is no later; among equals the deeper goes first. Hence what goes is always a leaf, and what is
    kept always whole prefixes. A request's own blocks count as cached only once it is over, and a request may
    be computed without room of its own, so no real cache can do better.
    """
    never, uses = len(trace.requests), _next_uses(trace)
    kept: dict[int, _Use] = {}
    farthest: list[tuple[int, int, int]] = []  # (-next, -place, block), with entries that are out of date
    hits = 0
    for request, following in zip(trace.requests, uses, strict=True):
        blocks = request.blocks.tolist()
        found = next((i for i, block in enumerate(blocks) if block not in kept), len(blocks))
        hits += request.tokens_in(found)
        for place, block in enumerate(blocks):
            use = _Use(following[place], place)
            if block not in kept:
                if use.next == never:
                    break  # so are all that continue it
                if len(kept) == capacity_blocks and not _give_up_beyond(use, kept, farthest):
                    break
            kept[block] = use
            heapq.heappush(farthest, (-use.next, -place, block))
    return hits


def _give_up_beyond(use: _Use, kept: dict[int, _Use], farthest: list[tuple[int, int, int]]) -> bool:
    """Give up the block whose use is the farthest; False if none is farther than `use`."""
    while farthest:
        next_use, place, block = farthest[0]
        known = kept.get(block)
        if known is None or known != _Use(-next_use, -place):
            heapq.heappop(farthest)
            continue
        if known <= use:
            return False
        heapq.heappop(farthest)
        del kept[block]
        return True
    return False


def _next_uses(trace: Trace) -> Sequence[Sequence[int]]:
    """For each request and each of its blocks, the index of the next request that has the block too."""
    upcoming: dict[int, int] = {}
    uses: list[list[int]] = []
    for index in range(len(trace.requests) - 1, -1, -1):
        blocks = trace.requests[index].blocks.tolist()
        uses.append([upcoming.get(block, len(trace.requests)) for block in blocks])
        upcoming.update(dict.fromkeys(blocks, index))
    return uses[::-1]
