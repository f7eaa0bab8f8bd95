"""Real traffic through the real cache: the hit rate of each eviction policy beside LRU's and the optimum's.

The cache holds one token for each block of the trace. Requests come one after the other, in order of time; what
one computed is there for the next. The hit rate is, over all prompts, the tokens found cached as a share of the
prompt tokens; a partial last block counts with the tokens it has, and can be hit as any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

from sapwood.cache import Namespace, PrefixCache
from sapwood.config import CacheConfig, EvictionName

from ..document import tell
from ..rows import Goal, Measure, Row
from ..sizes import Size, sized
from ..stats import Pair
from ..traces import BLOCK_TOKENS, BUNDLED, Trace, load_trace
from .optimum import optimal_hits

POLICIES: Sequence[EvictionName] = get_args(EvictionName)
MILLION = 1_000_000
_ABOVE = 1.001
_SPACE = Namespace("trace")


def rows(size: Size, files: Sequence[Path] = BUNDLED) -> Iterator[Row]:
    millions = sized(size, quick=(0.25,), normal=(1.0, 2.0, 4.0, 8.0))
    for file in files:
        trace = load_trace(file)
        if size == "quick":
            trace = trace.first(400)
        for capacity in millions:
            yield from _capacity_rows(trace, capacity)


def hits_by_policy(trace: Trace, capacity_blocks: int) -> Mapping[EvictionName, int]:
    """Prompt tokens that each policy finds cached."""
    hits: dict[EvictionName, int] = {}
    for policy in POLICIES:
        tell(f"cache: {trace.name} trace, {capacity_blocks:,} blocks, {policy}")
        hits[policy] = replay(trace, capacity_blocks, policy)
    return hits


def replay(trace: Trace, capacity_blocks: int, policy: EvictionName) -> int:
    """Prompt tokens found cached. A request longer than the cache is computed without it."""
    cache = PrefixCache(capacity_blocks, CacheConfig(page_size=1, eviction_policy=policy))
    hits = 0
    for request in trace.requests:
        if len(request.blocks) > capacity_blocks:
            continue
        cache.advance(request.at)
        lease = cache.lease(_SPACE, request.blocks)
        hits += request.tokens_in(lease.matched)
        cache.grow(lease, len(request.blocks))
        cache.commit(lease, request.blocks)
        cache.release(lease)
    return hits


def _capacity_rows(trace: Trace, millions: float) -> Iterator[Row]:
    capacity = int(millions * MILLION) // BLOCK_TOKENS
    hits, best = hits_by_policy(trace, capacity), optimal_hits(trace, capacity)
    for name, found in (*hits.items(), ("optimum", best)):
        if name == "lru":
            continue
        measure = Measure("hit rate", "of tokens", "higher", _goal(name, millions), counted=True)
        pair = Pair(found / trace.prompt_tokens, hits["lru"] / trace.prompt_tokens)
        way = _percent_of_the_way(found, hits["lru"], best)
        yield Row(
            f"{trace.name} trace, {millions:g}M tokens, {name}",
            measure,
            [pair],
            against="lru",
            detail={"% of the way from lru to the optimum": way},
            remark=f"{way:.1f} % of the way to the optimum",
        )


def _goal(name: str, millions: float) -> Goal | None:
    if name != "default":
        return None
    return Goal("ratio", "at least", 1.05 if millions <= 4 else _ABOVE)


def _percent_of_the_way(found: int, lru: int, best: int) -> float:
    return round(100 * (found - lru) / (best - lru), 1) + 0.0 if best > lru else 0.0  # and no -0.0
