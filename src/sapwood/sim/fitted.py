"""How long a step takes, fitted to what was measured: our own bench, or the steps of a captured run.

    seconds = fixed + token · tokens computed + pair · tokens read by attention + draw · tokens drawn

All four are at least 0, so each can be read: weights streamed once a step, work per token, KV read per pair of a token
and one before it, the output layer. Fitted by least squares of relative errors, so that short steps count as much as
long ones (Lawson and Hanson, "Solving Least Squares Problems", 1974, chapter 23; with four terms all sets of terms are
tried).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from sapwood.errors import UsageError
from sapwood.sim.cost import StepShape

TERMS = ("fixed", "token", "pair", "draw")


@dataclass(frozen=True, slots=True)
class Observation:
    """One or several steps that together took so long. Sums over these steps."""

    what: str
    seconds: float
    steps: int
    tokens: int
    pairs: int
    draws: int

    @classmethod
    def of_step(cls, shape: StepShape, seconds: float, what: str = "a step") -> Observation:
        return cls(what, seconds, 1, int(shape.counts.sum()), pairs_of(shape), shape.draws)

    @classmethod
    def of_prompt(cls, what: str, seconds: float, tokens: int, cached: int, chunk: int) -> Observation:
        """A prompt that was read alone, up to its first token."""
        lacking = tokens - cached
        pairs = pairs_of(StepShape(np.array([cached]), np.array([lacking]), 1))
        return cls(what, seconds, -(-lacking // chunk), lacking, pairs, 1)

    @classmethod
    def of_decoding(cls, what: str, seconds: float, prompt: int, steps: int, beside: int) -> Observation:
        """So many steps in which `beside` sequences, each behind a prompt, draw a token each."""
        pairs = beside * pairs_of(StepShape(np.array([prompt]), np.array([steps]), 1))
        return cls(what, seconds, steps, steps * beside, pairs, steps * beside)

    def __add__(self, other: Observation) -> Observation:
        """Both, one after the other."""
        return Observation(
            f"{self.what}, {other.what}",
            self.seconds + other.seconds,
            self.steps + other.steps,
            self.tokens + other.tokens,
            self.pairs + other.pairs,
            self.draws + other.draws,
        )

    @property
    def row(self) -> NDArray[np.float64]:
        return np.array([self.steps, self.tokens, self.pairs, self.draws], np.float64)


def pairs_of(shape: StepShape) -> int:
    """Pairs of a token that is computed and one that it reads, itself included."""
    return int((shape.counts * shape.starts + shape.counts * (shape.counts + 1) // 2).sum())


@dataclass(frozen=True, slots=True)
class FittedCost:
    """Implements CostModel. Coefficients in seconds; `error`: mean of the relative errors of what it was fitted to."""

    source: str
    fixed: float
    token: float
    pair: float
    draw: float
    error: float
    measurements: int
    chunk_tokens: int = 2**31
    """Tokens of a step, at most, for `prefill_seconds`."""

    def step_seconds(self, shape: StepShape) -> float:
        return self.predicted(Observation.of_step(shape, 0.0))

    def prefill_seconds(self, tokens: int, cached: int) -> float:
        return self.predicted(
            Observation.of_prompt("", 0.0, tokens, min(cached, tokens - 1), self.chunk_tokens)
        )

    def predicted(self, steps: Observation) -> float:
        """Seconds for these steps."""
        return (
            self.fixed * steps.steps
            + self.token * steps.tokens
            + self.pair * steps.pairs
            + self.draw * steps.draws
        )

    @property
    def name(self) -> str:
        """With the coefficients, and how well they fit."""
        error = (
            f"mean error {self.error:.1%}"
            if self.measurements > len(TERMS)
            else "no more than terms: no error is known"
        )
        return (
            f"{self.source}: {_short(self.fixed)} a step, {_short(self.token)} a token, "
            f"{_short(self.pair)} a pair of tokens, {_short(self.draw)} a draw; "
            f"{self.measurements} measurements, {error}"
        )


def _short(seconds: float) -> str:
    """Three figures: `6.58 ms`, `1.01 µs`, `0 ns`."""
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= 0.9995 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def fit(name: str, observations: Iterable[Observation], chunk_tokens: int = 2**31) -> FittedCost:
    """The coefficients that explain these best. Raises UsageError for fewer than one observation per term."""
    seen = list(observations)
    if len(seen) < len(TERMS) or any(not each.seconds > 0 for each in seen):
        raise UsageError(
            f"{name} has {len(seen)} measurements; at least {len(TERMS)} that took time are needed for as many terms"
        )
    rows = np.array([each.row / each.seconds for each in seen])
    best = _least(rows)
    error = float(np.abs(rows @ best - 1).mean())
    fixed, token, pair, draw = best.tolist()
    return FittedCost(name, fixed, token, pair, draw, error, len(seen), chunk_tokens)


def _least(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """x >= 0 with the least |rows · x - 1|²: of the solutions over each set of terms, the best without a negative."""
    scales = np.abs(rows).max(axis=0)
    scaled = rows / np.where(scales > 0, scales, 1.0)
    best, least = np.zeros(len(TERMS)), float(len(rows))
    for terms in _sets(range(len(TERMS))):
        part = np.linalg.lstsq(scaled[:, terms], np.ones(len(rows)), rcond=None)[0]
        left = float(((scaled[:, terms] @ part - 1) ** 2).sum())
        if part.min() >= 0 and left < least:
            best, least = np.zeros(len(TERMS)), left
            best[terms] = part
    return np.asarray(best / np.where(scales > 0, scales, 1.0), np.float64)


def _sets(terms: Sequence[int]) -> Iterable[list[int]]:
    """The smaller first: a term that explains nothing stays out."""
    return (list(each) for size in range(1, len(terms) + 1) for each in combinations(terms, size))
