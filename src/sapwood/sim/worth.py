"""What memory is worth: hits that one more GB buys, and what a million prompt tokens cost with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from sapwood.errors import UsageError
from sapwood.sim.curve import CurvePoint

_GB = 1e9
_HOUR = 3600.0
_MILLION = 1e6


@dataclass(frozen=True, slots=True)
class Prices:
    """Per hour, in any one currency."""

    device: float
    """Of what computes, as long as it does."""
    memory_gb: float
    """Of a GB (10⁹ bytes) of KV memory, held all the time."""


@dataclass(frozen=True, slots=True)
class Step:
    """From one capacity of a curve to the next."""

    start: CurvePoint
    end: CurvePoint
    gb: float
    """More memory."""

    @property
    def tokens_per_gb(self) -> float:
        """Prompt tokens reused more, over the whole trace, for each GB more."""
        return (self.end.reused_tokens - self.start.reused_tokens) / self.gb

    @property
    def rate_per_gb(self) -> float:
        """Hit rate gained for each GB more."""
        return (self.end.hit_rate - self.start.hit_rate) / self.gb

    @property
    def seconds_per_gb(self) -> float | None:
        """Prefill saved over the whole trace for each GB more; None without a cost model."""
        if self.start.prefill_seconds is None or self.end.prefill_seconds is None:
            return None
        return (self.start.prefill_seconds - self.end.prefill_seconds) / self.gb


def steps(points: Sequence[CurvePoint], kv_bytes_per_token: int) -> list[Step]:
    """Between neighbours of one policy's curve, by ascending capacity. Raises UsageError for other curves."""
    for start, end in pairwise(points):
        if start.policy != end.policy or start.capacity_tokens >= end.capacity_tokens:
            raise UsageError("steps are between rising capacities of one policy")
    return [Step(start, end, gigabytes(end, kv_bytes_per_token, start)) for start, end in pairwise(points)]


def gigabytes(point: CurvePoint, kv_bytes_per_token: int, beyond: CurvePoint | None = None) -> float:
    """Of the cache, or of what it has beyond another."""
    tokens = point.capacity_tokens - (0 if beyond is None else beyond.capacity_tokens)
    return tokens * kv_bytes_per_token / _GB


def cost_per_million(
    point: CurvePoint, prices: Prices, kv_bytes_per_token: int, trace_seconds: float
) -> float:
    """What a million prompt tokens cost: computing what was not cached, and holding the memory for the trace's time.

    Decoding costs the same at each capacity and is left out. Raises UsageError for a point without prefill times.
    """
    if point.prefill_seconds is None or not point.prompt_tokens:
        raise UsageError(
            "a cost needs prompts and their prefill times", hint="give curves(…, cost=…) a cost model"
        )
    compute = point.prefill_seconds / _HOUR * prices.device
    memory = gigabytes(point, kv_bytes_per_token) * trace_seconds / _HOUR * prices.memory_gb
    return (compute + memory) / point.prompt_tokens * _MILLION


def cheapest(
    points: Sequence[CurvePoint], prices: Prices, kv_bytes_per_token: int, trace_seconds: float
) -> CurvePoint:
    """The point at which a million tokens cost least; of equals the one with least memory."""
    if not points:
        raise UsageError("no curve has no cheapest point")
    return min(
        points,
        key=lambda point: (
            cost_per_million(point, prices, kv_bytes_per_token, trace_seconds),
            point.capacity_tokens,
        ),
    )
