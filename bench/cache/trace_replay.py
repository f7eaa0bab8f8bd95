"""Real traffic through the real cache: the hit rate of each eviction policy beside LRU's and the optimum's.

The cache holds one token for each block of the trace. Requests come one after the other, in order of time; what
one computed is there for the next. The hit rate is, over all prompts, the tokens found cached as a share of the
prompt tokens; a partial last block counts with the tokens it has, and can be hit as any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import get_args

import numpy as np

from sapwood.config import EvictionName
from sapwood.sim import CurvePoint, Trace, curves

from ..document import tell
from ..rows import Goal, Measure, Row
from ..sizes import Size, sized
from ..stats import Pair
from ..traces import BUNDLED, load_trace

POLICIES: Sequence[str] = (*get_args(EvictionName), "optimum")
MILLION = 1_000_000
_QUICK_REQUESTS = 400
_ABOVE = 1.001


def rows(size: Size, files: Sequence[Path] = BUNDLED) -> Iterator[Row]:
    capacities = sized(size, quick=(MILLION // 4,), normal=(MILLION, 2 * MILLION, 4 * MILLION, 8 * MILLION))
    for file in files:
        trace = load_trace(file)
        if size == "quick":
            trace = trace.where(np.arange(len(trace)) < _QUICK_REQUESTS)
        points = curves(trace, capacities, POLICIES, progress=lambda text: tell(f"cache: {text}"))
        by_capacity = sorted(points, key=lambda point: point.capacity_tokens)
        for _, each in groupby(by_capacity, key=lambda point: point.capacity_tokens):
            yield from _capacity_rows(trace, list(each))


def _capacity_rows(trace: Trace, points: Sequence[CurvePoint]) -> Iterator[Row]:
    found = {point.policy: point for point in points}
    lru, best = found["lru"], found["optimum"]
    for name, point in found.items():
        if name == "lru":
            continue
        millions = point.capacity_tokens / MILLION
        way = _percent_of_the_way(point.reused_tokens, lru.reused_tokens, best.reused_tokens)
        yield Row(
            f"{trace.name} trace, {millions:g}M tokens, {name}",
            Measure("hit rate", "of tokens", "higher", _goal(name, millions), counted=True),
            [Pair(point.hit_rate, lru.hit_rate)],
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
