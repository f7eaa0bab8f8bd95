"""What memory is worth: hits that one more GB buys, and what a million prompt tokens cost with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from sapwood.errors import UsageError
from sapwood.sim.curve import CurvePoint

_GB = 1e9
_HOUR = 3600.0
_MILLION = 1e6


@dataclass(frozen=True, slots=True)
class Step:
    """From one capacity of a curve to the next."""

    start: CurvePoint
    end: CurvePoint
    gb: float
    """More memory."""

    @property
    def rate_per_gb(self) -> float:
        """Hit rate gained for each GB more."""
        return (self.end.hit_rate - self.start.hit_rate) / self.gb


def steps(points: Sequence[CurvePoint], kv_bytes_per_token: int) -> list[Step]:
    """Between neighbours of one policy's curve, by ascending capacity. Raises UsageError for other curves."""
    for start, end in pairwise(points):
        if start.policy != end.policy or start.capacity_tokens >= end.capacity_tokens:
            raise UsageError("steps are between rising capacities of one policy")
    return [
        Step(start, end, (end.capacity_tokens - start.capacity_tokens) * kv_bytes_per_token / _GB)
        for start, end in pairwise(points)
    ]


@dataclass(frozen=True, slots=True)
class Rent:
    """Of replicas, for all of a trace's time: memory comes with what computes.

    Attributes:
        price_per_hour: of one replica.
        most_tokens: of KV that one holds.
        seconds: how long the trace takes.
        least_replicas: that are there in any case.
    """

    price_per_hour: float
    most_tokens: int
    seconds: float
    least_replicas: int = 1

    def replicas(self, point: CurvePoint) -> int:
        """As many as its memory takes, or as reading keeps busy. Raises UsageError without prefill times."""
        if point.prefill_seconds is None:
            raise UsageError("a cost needs prefill times", hint="give curves(…, cost=…) a cost model")
        memory = math.ceil(point.capacity_tokens / self.most_tokens)
        return max(self.least_replicas, memory, math.ceil(point.prefill_seconds / self.seconds))


def cost_per_million(point: CurvePoint, rent: Rent) -> float:
    """What a million prompt tokens cost; decoding may need more replicas, and is left out. Raises UsageError."""
    if not point.prompt_tokens:
        raise UsageError("a cost per token needs prompts")
    price = rent.replicas(point) * rent.price_per_hour * rent.seconds / _HOUR
    return price / point.prompt_tokens * _MILLION
