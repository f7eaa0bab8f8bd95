"""Requests one after another through the real cache: what each finds, without a clock of its own or a scheduler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sapwood.cache import Namespace, PrefixCache, Tokens
from sapwood.config import CacheConfig
from sapwood.sim.capacity import fits, units_of, useful
from sapwood.sim.trace import Trace


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """What became of each request of a trace.

    Attributes:
        matched: int64 [n], blocks found cached of prompt and reply; `Definition` makes prompt tokens of them.
        refused: bool [n], those with more blocks than the cache: they find nothing and disturb nothing.
        evicted: blocks given up in all.
    """

    matched: NDArray[np.int64]
    refused: NDArray[np.bool_]
    evicted: int


def replay(
    trace: Trace,
    capacity_tokens: int,
    config: CacheConfig | None = None,
    *,
    prove: Callable[[PrefixCache], None] | None = None,
) -> Replay:
    """In order of arrival, each over before the next comes; so room is what one request needs, and no reply is late.

    The cache holds one page per block of the trace, whatever `config.page_size` is (`in_pages` makes blocks of
    pages), and what nobody named takes none (`with_replies` names it). A request reads all of its blocks that are
    cached while it runs, the last one and those of its named reply too. `prove`, if given, is called with the cache
    after each request. Raises UsageError for a capacity below one block.
    """
    pages = units_of(trace, capacity_tokens)
    cache = PrefixCache(useful(trace, pages), in_units(config or CacheConfig(), trace.unit_tokens))
    spaces = [Namespace(name) for name in trace.scope_names]
    matched, refused = np.zeros(len(trace), np.int64), ~fits(trace, pages)
    names, offsets, scopes = trace.names, trace.offsets.tolist(), trace.scopes.tolist()
    arrivals = trace.arrivals.tolist()
    for index in np.flatnonzero(~refused).tolist():
        blocks = names[offsets[index] : offsets[index + 1]]
        matched[index] = pass_through(cache, spaces[scopes[index]], blocks, arrivals[index])
        if prove is not None:
            prove(cache)
    return Replay(matched, refused, cache.books().evicted_tokens)


def pass_through(
    cache: PrefixCache, namespace: Namespace, tokens: Tokens, now: float, most: int | None = None
) -> int:
    """What a request does that comes and goes at once: leaves `tokens`, and finds so many of them, or at most `most`.

    There is room for all of them.
    """
    cache.advance(now)
    lease = cache.lease(namespace, tokens, most)
    found = lease.matched
    cache.grow(lease, len(tokens))
    cache.commit(lease, tokens)
    cache.release(lease)
    return found


def in_units(config: CacheConfig, unit_tokens: int) -> CacheConfig:
    """The same policy where a token of the cache stands for a block of the trace."""
    attention = config.attention_tokens
    scaled = None if attention is None else max(1, round(attention / unit_tokens))
    return replace(config, page_size=1, attention_tokens=scaled)
