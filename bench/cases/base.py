"""What a serving case is: a scenario that can be run against one server at a time, over and over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..answers import Answer
from ..asking import Ask, Server
from ..needs import Needs
from ..prompts import Prompts
from ..rows import Measure
from ..stats import percentile


class Case(Protocol):
    """Equal trials ask every server the same; unequal trials share no prompt."""

    @property
    def name(self) -> str:
        """The `scenario` of its rows."""
        ...

    @property
    def needs(self) -> Needs:
        """Of each server that is started for it."""
        ...

    @property
    def short(self) -> bool:
        """Whether it is worth the time of a server that is only a floor."""
        ...

    @property
    def like(self) -> str:
        """The case whose best settings are taken; its own name if they are to be found by scouting."""
        ...

    @property
    def pairs(self) -> int:
        """How often each server runs it."""
        ...

    @property
    def measures(self) -> Sequence[Measure]: ...

    @property
    def regime(self) -> Mapping[str, Any]:
        """What it holds fixed, for the reader of a row."""
        ...

    async def run(self, server: Server, prompts: Prompts, trial: int) -> Mapping[str, float]:
        """Once, against one server: a value for each measure by its name, or for none if it cannot tell."""
        ...


@dataclass(frozen=True, slots=True)
class Timed:
    """Answers in the order of their asks, and the seconds from the first request to the last token."""

    answers: tuple[Answer, ...]
    seconds: float

    @property
    def tokens(self) -> int:
        return sum(answer.tokens for answer in self.answers)

    @property
    def throughput(self) -> float:
        """Answers a second."""
        return len(self.answers) / self.seconds

    def first_token_ms(self, share: float) -> float:
        """Percentile of the time to the first token, in milliseconds."""
        return percentile([1e3 * answer.first_token for answer in self.answers], share)

    def under_load(self) -> dict[str, float]:
        """What is told of many requests at once: `throughput`, `ttft_p50`, `ttft_p95`."""
        return {
            "throughput": self.throughput,
            "ttft_p50": self.first_token_ms(0.5),
            "ttft_p95": self.first_token_ms(0.95),
        }


async def ask_all(server: Server, asks: Sequence[Ask], at_once: int) -> Timed:
    """Closed loop: at most `at_once` requests in flight, the next one starts when one ends."""
    gate = asyncio.Semaphore(at_once)

    async def one(ask: Ask) -> Answer:
        async with gate:
            return await server.ask(ask)

    start = time.perf_counter()
    answers = await asyncio.gather(*(one(ask) for ask in asks))
    return Timed(tuple(answers), time.perf_counter() - start)


def joined(first: tuple[int, ...] | str, then: tuple[int, ...] | str) -> tuple[int, ...] | str:
    """Two pieces of one source as one prompt."""
    if isinstance(first, str) and isinstance(then, str):
        return first + then
    assert not isinstance(first, str), "pieces of one source are of one form"
    assert not isinstance(then, str), "pieces of one source are of one form"
    return first + then
