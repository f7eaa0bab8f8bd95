"""What came out of a simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sapwood.sim.setup import Setup

Seconds = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with what it is: two simulators that differ usually differ in the definition."""

    name: str
    value: float
    unit: str
    definition: str


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Columns have one entry for each request, in the trace's order. Times in seconds since the trace began.

    Attributes:
        setup: what was simulated; its router may not survive pickling if it is a lambda.
        cost: name of the cost model.
        admitted: when its prompt was first read; nan if it was refused, or whoever asked was gone before.
        first_token: when its first token was there; nan if it drew none.
        finished: when its last token was there, its prompt read if it draws none, or whoever asked was gone; nan if
            it was refused.
        reused, missed: where the prompt's tokens came from at first admission, as the engine accounts for them;
            `reused + sum(missed)` is the prompt. Zero if it was refused.
        replica: who got it.
        refusals: why, by index.
        order: indices in the order of first admission, over all replicas.
        steps, busy_seconds, computed_tokens: of each replica.
        start: what the caches held at the beginning: "cold", or who warmed them.
    """

    setup: Setup
    cost: str
    arrival: Seconds
    prompt_tokens: Counts
    output_tokens: Counts
    admitted: Seconds
    first_token: Seconds
    finished: Seconds
    reused: Counts
    missed: Mapping[str, Counts]
    replica: Counts
    refused: NDArray[np.bool_]
    refusals: Mapping[int, str]
    order: Counts
    steps: Counts
    busy_seconds: Seconds
    computed_tokens: Counts
    preemptions: int
    evicted_tokens: int
    start: str = "cold"

    @property
    def ttft(self) -> Seconds:
        """Of all that drew a token, in the trace's order."""
        drew = np.isfinite(self.first_token)
        return (self.first_token - self.arrival)[drew]

    @property
    def tpot(self) -> Seconds:
        """Of all that drew at least two tokens."""
        drew = np.isfinite(self.first_token) & (self.output_tokens > 1)
        spans = (self.finished - self.first_token)[drew]
        return np.asarray(spans / (self.output_tokens[drew] - 1), np.float64)

    @property
    def queueing(self) -> Seconds:
        """Of all that were admitted; not of who left while waiting."""
        return (self.admitted - self.arrival)[np.isfinite(self.admitted)]

    @property
    def seconds(self) -> float:
        """From the first arrival to the end of the last."""
        return float(np.nanmax(self.finished) - self.arrival[0]) if len(self.order) else 0.0

    @property
    def hit_rate(self) -> float:
        """Prompt tokens reused per prompt token, those of refused requests too."""
        asked = int(self.prompt_tokens.sum())
        return int(self.reused.sum()) / asked if asked else 0.0

    @property
    def output_per_second(self) -> float:
        drawn = int(self.output_tokens[~self.refused].sum())
        return drawn / self.seconds if self.seconds else 0.0

    def since(self, begin: int) -> Run:
        """Without the requests before the index `begin`, which only warmed the caches."""
        columns = (
            "arrival",
            "prompt_tokens",
            "output_tokens",
            "admitted",
            "first_token",
            "finished",
            "reused",
        )
        rows = {name: getattr(self, name)[begin:] for name in (*columns, "replica", "refused")}
        return replace(
            self,
            **rows,
            missed={reason: column[begin:] for reason, column in self.missed.items()},
            refusals={index - begin: reason for index, reason in self.refusals.items()},
            order=self.order - begin,
            start=f"warmed by the {begin:,} requests before",
        )

    def figures(self) -> list[Figure]:
        """What people ask first, each with its definition."""
        served = int((~self.refused).sum())
        return [
            Figure(
                "served", served, "requests", f"{len(self.refusals)} more refused: they can never be placed"
            ),
            Figure(
                "hit rate",
                self.hit_rate,
                "",
                "prompt tokens reused / prompt tokens, refused ones too, at first admission, whole pages of "
                f"{self.setup.cache.page_size}, replies cached, caches {self.start} at the start",
            ),
            *_spread("ttft", self.ttft, "arrival to first token, of those that draw any"),
            *_spread(
                "tpot",
                self.tpot,
                "first to last token / (tokens - 1), mean of each request, of two tokens on",
            ),
            *_spread("queueing", self.queueing, "arrival to first admission"),
            Figure(
                "throughput", self.output_per_second, "tokens/s", "output tokens / (last end - first arrival)"
            ),
            Figure("preemptions", self.preemptions, "", "requests pushed back for want of pages"),
            Figure("evicted", self.evicted_tokens, "tokens", "given up by the caches for others"),
        ]


def _spread(name: str, seconds: Seconds, definition: str) -> list[Figure]:
    if not len(seconds):
        return []
    shares = [(f"p{share}", float(np.percentile(seconds, share))) for share in (50, 95, 99)]
    values = [("mean", float(seconds.mean())), *shares]
    return [Figure(f"{name} {which}", value, "s", definition) for which, value in values]
