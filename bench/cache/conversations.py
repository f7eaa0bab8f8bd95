"""Made-up chats: who says how much and when, from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .virtual_clock import Arrival

_LOWEST_ID, _HIGHEST_ID = 10, 48_000


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Whole numbers with this median; `sigma` is the spread of their logarithm."""

    median: float
    sigma: float
    most: int

    def draw(self, rng: np.random.Generator) -> int:
        return int(np.clip(self.median * np.exp(self.sigma * rng.standard_normal()), 1, self.most))


@dataclass(frozen=True, slots=True)
class ChatShape:
    """Lengths in tokens, about those of public chat logs; times in seconds.

    Time between an answer and the next message is Pareto's (Lomax): most come soon, a few after very long.
    """

    conversations: int = 40
    groups: int = 8
    """Conversations of a group share a system prompt."""
    fewest_turns: int = 6
    most_turns: int = 12
    system: LogNormal = LogNormal(400, 0.7, 1500)
    message: LogNormal = LogNormal(40, 1.1, 1000)
    answer: LogNormal = LogNormal(120, 0.7, 500)
    think_scale: float = 20.0
    think_tail: float = 1.5
    """Of the Pareto distribution; below 2 the variance is infinite."""
    start_span: float = 300.0
    """Conversations begin within this time."""
    answer_seconds: float = 5.0
    """Supposed time to answer: thinking begins after it. Fixed, so that all policies see the same arrivals; only
    a turn whose time comes before the last answer is there waits for that."""


@dataclass(frozen=True, slots=True, eq=False)
class Chats:
    arrivals: Sequence[Arrival]
    """Of every turn; its prompt is all that was said before it, and it comes after the answer before it."""
    tokens: int
    """Different tokens in all: what a cache must hold to compute none twice."""
    longest: int
    """Tokens of the longest conversation."""


def make_chats(shape: ChatShape, seed: int) -> Chats:
    rng = np.random.default_rng(seed)
    systems = [_words(rng, shape.system) for _ in range(shape.groups)]
    arrivals: list[Arrival] = []
    lengths = []
    for number in range(shape.conversations):
        turns = _conversation(shape, systems[number % shape.groups], len(arrivals), rng)
        arrivals += turns
        lengths.append(len(turns[-1].prompt) + len(turns[-1].answer))
    repeated = sum(len(systems[number % shape.groups]) for number in range(shape.conversations))
    tokens = sum(lengths) - repeated + sum(len(system) for system in systems)
    return Chats(arrivals, tokens, max(lengths))


def _conversation(
    shape: ChatShape, said: NDArray[np.int32], first: int, rng: np.random.Generator
) -> list[Arrival]:
    at, turns = rng.uniform(0, shape.start_span), list[Arrival]()
    for turn in range(rng.integers(shape.fewest_turns, shape.most_turns, endpoint=True)):
        prompt = np.concatenate([said, _words(rng, shape.message)])
        answer = _words(rng, shape.answer)
        turns.append(Arrival(float(at), prompt, answer, after=first + turn - 1 if turn else None))
        said = np.concatenate([prompt, answer])
        at += shape.answer_seconds + shape.think_scale * rng.pareto(shape.think_tail)
    return turns


def _words(rng: np.random.Generator, length: LogNormal) -> NDArray[np.int32]:
    return rng.integers(_LOWEST_ID, _HIGHEST_ID, length.draw(rng), dtype=np.int32)
