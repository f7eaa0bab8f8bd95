"""The hit rate that the traffic of late would have had with less memory, and with more.

Six miniature caches, for ¼ to 8 times the present memory, serve a sample of the traffic: the real PrefixCache with
the real policy, but of stretches instead of tokens, and smaller by the share of stretches that is watched. So every
policy is estimated by what it really does. Sources: miniature simulation (Waldspurger, Saemundsson, Ahmad and Park,
"Cache Modeling and Optimization using Miniature Simulations", USENIX ATC 2017), and for the sample SHARDS (see
`sample.py`).

It is an estimate. A hit shorter than a stretch is not seen, nor is the tail of a prompt that fills none; a sequence
is taken to come and go at the moment it ends, so what others evict meanwhile, and room that running sequences
take up, is not seen either.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sapwood.cache.keys import Namespace, Tokens
from sapwood.cache.prefix_cache import PrefixCache
from sapwood.cache.sample import Sample, StretchSampler
from sapwood.config import CacheConfig

TIMES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""The memories asked about, as multiples of the present one."""

STRETCH_TOKENS = 64
"""Tokens that are watched, stored and given up as one."""

SMALLEST = 512
"""Stretches that the smallest miniature cache holds, if the real one holds so many: sets the share watched.

Replayed on real conversations, twice as many halve the error, and half as many exceed 3 points at times.
"""

_HALF_LIFE = max(TIMES)
"""A hit counts half after so many times the present memory was asked for: the largest cache needs as long to fill."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The answer for one size of memory."""

    times: float
    """As a multiple of the present memory."""
    capacity_tokens: int
    hit_rate: float | None
    """Tokens reused per token asked for, 0 to 1; None before anything was asked for."""


class HitRateCurve:
    """Give it every sequence as it ends, and ask for `points` at any time.

    Args:
        capacity_tokens: the present memory.
        config: of the real cache. Without an index there is nothing to estimate, and there are no points.
        stretch_tokens: STRETCH_TOKENS, but for traces whose smallest unit is something else.
        smallest: stretches in the smallest miniature cache.
    """

    def __init__(
        self,
        capacity_tokens: int,
        config: CacheConfig | None = None,
        *,
        stretch_tokens: int = STRETCH_TOKENS,
        smallest: int = SMALLEST,
    ) -> None:
        config = config or CacheConfig()
        self._capacity_tokens = capacity_tokens
        stretches = capacity_tokens / stretch_tokens
        rate = min(1.0, smallest / (min(TIMES) * stretches))
        self._sampler = StretchSampler(stretch_tokens, rate)
        small = _in_small(config, rate / stretch_tokens)
        times = () if config.prefix_index == "none" else TIMES
        self._what_ifs = tuple(_WhatIf(each, round(rate * stretches * each), small) for each in times)
        self._half_life = _HALF_LIFE * stretches
        self._asked = 0.0
        self._watched = 0.0
        self._points = self._estimate()

    @property
    def rate(self) -> float:
        """Share of the stretches that are watched."""
        return self._sampler.rate

    def observe(self, namespace: Namespace, tokens: Tokens, asked: int, now: float) -> None:
        """A sequence ended: its first `asked` tokens were looked up, and all of `tokens` were stored.

        Of it the share watched is kept, no more.
        """
        if not self._what_ifs:
            return
        sample = self._sampler.sample(namespace, tokens)
        # As in the real cache the last token of a prompt is computed in any case, and with it its stretch.
        stretches = max(0, min(asked, len(tokens)) - 1) // self._sampler.stretch_tokens
        watched = sample.within(stretches)
        decay = 0.5 ** (stretches / self._half_life)
        self._asked = self._asked * decay + stretches
        self._watched = self._watched * decay + watched
        for what_if in self._what_ifs:
            what_if.observe(sample, watched, decay, now)
        self._points = self._estimate()

    def points(self) -> tuple[CurvePoint, ...]:
        """The estimates, from the smallest memory to the largest; the tuple never changes."""
        return self._points

    def flush(self) -> None:
        """All that is stored was forgotten; hit rates so far stand."""
        for what_if in self._what_ifs:
            what_if.cache.flush()

    def check(self) -> None:
        """Prove the books of the miniature caches. Raises BooksError."""
        for what_if in self._what_ifs:
            what_if.cache.check()

    def _estimate(self) -> tuple[CurvePoint, ...]:
        return tuple(
            CurvePoint(
                what_if.times, int(self._capacity_tokens * what_if.times), self._hit_rate(what_if.hits)
            )
            for what_if in self._what_ifs
        )

    def _hit_rate(self, hits: float) -> float | None:
        """Corrected as in SHARDS-adj, of the SHARDS paper.

        How many stretches were asked for is known. Where the sample has more or fewer than its share of them,
        it is because of the hottest few (a system prompt), and these are hits at any size.
        """
        if self._asked == 0:
            return None
        expected = self.rate * self._asked
        return min(1.0, max(0.0, (hits + expected - self._watched) / expected))


def _in_small(config: CacheConfig, scale: float) -> CacheConfig:
    """The same policy over stretches; a sequence has `scale` watched ones per token."""
    if config.prefix_index == "blocks":
        # It gives up what the tree gives up under lru, and takes several times as long page by page.
        return CacheConfig(page_size=1, eviction_policy="lru")
    attention = config.attention_tokens
    scaled = None if attention is None else max(1, round(attention * scale))
    return replace(config, page_size=1, attention_tokens=scaled)


class _WhatIf:
    """One miniature cache, and the stretches it would have reused, older ones counting less."""

    def __init__(self, times: float, stretches: int, config: CacheConfig) -> None:
        self.times = times
        self.hits = 0.0
        self.cache = PrefixCache(max(1, stretches), config)

    def observe(self, sample: Sample, watched: int, decay: float, now: float) -> None:
        names = sample.names
        self.cache.advance(now)
        lease = self.cache.lease(_ALL, names, watched)
        self.hits = self.hits * decay + lease.matched
        # A longer one would be refused here, so it leaves the rest alone.
        if len(names) <= self.cache.capacity_pages:
            self.cache.grow(lease, len(names))
            self.cache.commit(lease, names)
        self.cache.release(lease)


_ALL = Namespace("")
"""The names of stretches tell namespaces apart already."""
