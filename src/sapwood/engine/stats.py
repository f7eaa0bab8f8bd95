"""What the engine counts. A snapshot is a plain value; publishing it (Prometheus, a log) is for others."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from sapwood.cache import CurvePoint
from sapwood.types import Usage

STEP_PARTS = ("schedule", "run", "apply")

_WAIT_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_STEP_BOUNDS = (0.00001, 0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


@dataclass(frozen=True, slots=True)
class HistogramSnapshot:
    """Counts per bucket, not cumulative: `counts[i]` is of values ≤ bounds[i], the last of those above."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float

    @property
    def count(self) -> int:
        return sum(self.counts)


class Histogram:
    def __init__(self, bounds: tuple[float, ...]) -> None:
        if any(low >= high for low, high in pairwise(bounds)):
            raise ValueError(f"histogram bounds must ascend, got {bounds}")
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def snapshot(self) -> HistogramSnapshot:
        return HistogramSnapshot(self._bounds, tuple(self._counts), self._sum)


@dataclass(frozen=True, slots=True)
class PageCounts:
    """Every page is in exactly one of these; they sum to the pool."""

    free: int
    tree: int
    """Remembered and not in use: can be evicted."""
    leased: int
    """Remembered and in use."""
    private: int
    """Held by one sequence, not (yet) in the tree."""


@dataclass(frozen=True, slots=True)
class TenantCounts:
    """Of one tenant, since the start; as in `EngineStats`."""

    prompt_tokens: int = 0
    reused_tokens: int = 0
    missed_tokens: Mapping[str, int] = field(default_factory=dict)
    generated_tokens: int = 0
    finished: int = 0


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counters since the start, gauges of now. Names follow the metrics of the same name."""

    prompt_tokens: int
    reused_tokens: int
    missed_tokens: Mapping[str, int]
    generated_tokens: int
    evicted_tokens: int
    pinned_tokens: int
    pin_budget_tokens: int
    """Most tokens that pins may hold."""
    score_bytes: int
    """Kept of prompts' scores."""
    score_budget_bytes: int
    pages: PageCounts
    running: int
    """Requests of which a sample is running."""
    waiting: int
    """Requests of which none is running yet, or any more."""
    preemptions: int
    aborts: int
    failures: int
    finished: int
    computed_tokens: int
    """Tokens computed, prompt and output, repeated work included."""
    guessed_tokens: int
    """Of these, those that were guesses of what is drawn, right or wrong."""
    guessed_right_tokens: int
    """Guesses that became part of an answer."""
    steps: int
    time_to_first_token: HistogramSnapshot
    inter_token: HistogramSnapshot
    queue: HistogramSnapshot
    step: Mapping[str, HistogramSnapshot]
    """Per part of a step: schedule, run, apply."""
    curve: tuple[CurvePoint, ...]
    """Estimated hit rates with less memory and with more, smallest first; empty if prefixes are not reused."""
    tenants: Mapping[str, TenantCounts]
    """By name, of those that asked for something; requests of no tenant are in the sums alone."""


class Tally:
    """The engine's own accumulators. Durations in seconds."""

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.reused_tokens = 0
        self.missed_tokens: Counter[str] = Counter()
        self.generated_tokens = 0
        self.computed_tokens = 0
        self.guessed_tokens = 0
        self.guessed_right_tokens = 0
        self.steps = 0
        self.aborts = 0
        self.failures = 0
        self.finished = 0
        self.time_to_first_token = Histogram(_WAIT_BOUNDS)
        self.inter_token = Histogram(_WAIT_BOUNDS)
        self.queue = Histogram(_WAIT_BOUNDS)
        self.step = {part: Histogram(_STEP_BOUNDS) for part in STEP_PARTS}
        # Values, not accumulators: a snapshot after each step copies no more than the dictionary.
        self._tenants: dict[str, TenantCounts] = {}

    def count_prompt(self, usage: Usage, tenant: str) -> None:
        self.prompt_tokens += usage.prompt_tokens
        self.reused_tokens += usage.reused
        self.missed_tokens.update(usage.missed)
        if tenant:
            own = self._of(tenant)
            self._tenants[tenant] = replace(
                own,
                prompt_tokens=own.prompt_tokens + usage.prompt_tokens,
                reused_tokens=own.reused_tokens + usage.reused,
                missed_tokens=Counter(own.missed_tokens) + Counter(usage.missed),
            )

    def count_token(self, tenant: str) -> None:
        self.generated_tokens += 1
        if tenant:
            own = self._of(tenant)
            self._tenants[tenant] = replace(own, generated_tokens=own.generated_tokens + 1)

    def count_finished(self, tenant: str) -> None:
        self.finished += 1
        if tenant:
            own = self._of(tenant)
            self._tenants[tenant] = replace(own, finished=own.finished + 1)

    def _of(self, tenant: str) -> TenantCounts:
        return self._tenants.get(tenant, TenantCounts())

    def snapshot(
        self,
        *,
        pages: PageCounts,
        running: int,
        waiting: int,
        preemptions: int,
        evicted_tokens: int,
        pinned_tokens: int,
        pin_budget_tokens: int,
        score_bytes: int,
        score_budget_bytes: int,
        curve: tuple[CurvePoint, ...] = (),
    ) -> EngineStats:
        return EngineStats(
            prompt_tokens=self.prompt_tokens,
            reused_tokens=self.reused_tokens,
            missed_tokens=dict(self.missed_tokens),
            generated_tokens=self.generated_tokens,
            evicted_tokens=evicted_tokens,
            pinned_tokens=pinned_tokens,
            pin_budget_tokens=pin_budget_tokens,
            score_bytes=score_bytes,
            score_budget_bytes=score_budget_bytes,
            pages=pages,
            running=running,
            waiting=waiting,
            preemptions=preemptions,
            aborts=self.aborts,
            failures=self.failures,
            finished=self.finished,
            computed_tokens=self.computed_tokens,
            guessed_tokens=self.guessed_tokens,
            guessed_right_tokens=self.guessed_right_tokens,
            steps=self.steps,
            time_to_first_token=self.time_to_first_token.snapshot(),
            inter_token=self.inter_token.snapshot(),
            queue=self.queue.snapshot(),
            step={part: histogram.snapshot() for part, histogram in self.step.items()},
            curve=curve,
            tenants=dict(self._tenants),
        )
