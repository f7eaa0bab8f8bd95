"""A few requests with prompts of their own beside an endless stream that shares a hot one: how long they wait.

The wait is counted in tokens: what is computed, from arrival to admission, for requests that came later. An
order that only looks at the cache (lpm) lets them starve once the stream alone fills the machine; the default
order has a bound, which is proved in `sapwood.sched.order.Gain`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sapwood.config import CacheConfig, OrderName, SchedulerConfig

from ..document import tell
from ..rows import Goal, Measure, Row
from ..sizes import Size, sized
from ..stats import Pair, percentile
from .virtual_clock import Arrival, Machine, Simulation

TOKENS_PER_SECOND = 500.0
_SEED = 1


@dataclass(frozen=True, slots=True)
class Stream:
    """Lengths are in tokens. Hot requests come at random (Poisson), cold ones at equal distances."""

    load: float
    """Of the hot requests alone, as a share of what the machine computes."""
    hot: int
    cold: int
    prefix: int = 1000
    """Shared by all hot prompts."""
    own: int = 56
    """At the end of each hot prompt."""
    answer: int = 8

    @property
    def longest(self) -> int:
        """Tokens of any request; a cold prompt is as long as a hot one."""
        return self.prefix + self.own + self.answer

    @property
    def work(self) -> int:
        """Tokens computed for a hot request: all but the prefix and the last one drawn."""
        return self.own + self.answer - 1

    @property
    def span(self) -> float:
        """Seconds that it lasts."""
        return self.hot * self.work / (self.load * TOKENS_PER_SECOND)


def rows(size: Size) -> Iterator[Row]:
    hot, cold = sized(size, quick=(120, 2), normal=(4000, 25), full=(12_000, 100))
    for load in (0.95, 1.05):
        yield _row(Stream(load, hot, cold))


def bound(config: SchedulerConfig, longest: int) -> int:
    """Most tokens computed for later requests before one is admitted, under the default order."""
    return config.patience_tokens + config.chunk_tokens + config.max_running * longest


def cold_waits(stream: Stream, config: SchedulerConfig) -> list[int]:
    """One for each cold request."""
    machine = Machine(
        pages=2 * config.max_running * stream.longest,
        cache=CacheConfig(),
        scheduler=config,
        token_seconds=1 / TOKENS_PER_SECOND,
    )
    return Simulation(machine, make_arrivals(stream, _SEED)).run().cold_waits


def make_arrivals(stream: Stream, seed: int) -> list[Arrival]:
    """The cold ones come in the first half, so that the stream is endless for them."""
    rng = np.random.default_rng(seed)
    prefix = _tokens(rng, stream.prefix)
    hot = [
        Arrival(float(at), np.concatenate([prefix, _tokens(rng, stream.own)]), _tokens(rng, stream.answer))
        for at in rng.uniform(0, stream.span, stream.hot)
    ]
    cold = [
        Arrival(float(at), _tokens(rng, stream.prefix + stream.own), _tokens(rng, stream.answer), cold=True)
        for at in np.linspace(0.1, 0.5, stream.cold) * stream.span
    ]
    return hot + cold


def _row(stream: Stream) -> Row:
    orders: tuple[OrderName, ...] = ("default", "lpm")
    waits: dict[OrderName, list[int]] = {}
    for order in orders:
        tell(f"cache: hot and cold, load {stream.load:.0%}, {order}")
        waits[order] = cold_waits(stream, SchedulerConfig(schedule_policy=order, speculate="off"))
    most = bound(SchedulerConfig(), stream.longest)
    ours, lpm = (percentile(waits[order], 0.99) for order in orders)
    return Row(
        f"cold requests beside a hot stream of {stream.load:.0%} load, default",
        Measure("p99 wait", "tokens of later requests", "lower", Goal("ours", "at most", most), counted=True),
        [Pair(ours, lpm)],
        against="lpm",
        detail={"bound": most},
        remark=f"bound {most:,}; lpm {'exceeds' if lpm > most else 'keeps'} it",
    )


def _tokens(rng: np.random.Generator, count: int) -> NDArray[np.int32]:
    return rng.integers(10, 48_000, count, dtype=np.int32)
