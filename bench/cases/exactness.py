"""Greedy answers that change with what is cached or who else is asked: for ours the number is 0, bit for bit.

Every prompt is asked cold, then once more with everything cached, then in order after a flush (so that only
the shared beginnings hit), then eight at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..answers import Answer
from ..asking import Ask, Server
from ..needs import Needs
from ..prompts import Prompts
from ..rows import Goal, Measure
from ..sizes import Size, sized
from .base import ask_all

SYSTEMS = 4
NEVER = Goal("ours", "at most", 0)


@dataclass(frozen=True, slots=True)
class Exactness:
    prompts: int
    shared_words: int
    max_tokens: int
    pairs: int = 1
    name = "exactness"
    like = "multi_turn"
    at_once = 8
    short = False
    needs = Needs(8)
    measures = (
        Measure("texts_changed", "answers", "lower", NEVER),
        Measure("logprobs_changed", "answers", "lower", NEVER),
    )

    @property
    def regime(self) -> Mapping[str, Any]:
        return {
            "prompts": self.prompts,
            "shared_words": self.shared_words,
            "max_tokens": self.max_tokens,
            "compared": "cold; warm; shared beginnings warm; eight at once",
        }

    async def run(self, server: Server, prompts: Prompts, trial: int) -> Mapping[str, float]:
        asks = [self._ask(prompts, trial, number) for number in range(self.prompts)]
        cold = []
        for number, ask in enumerate(asks):
            # Those in between have nothing in common, and some servers take seconds to forget.
            if number % SYSTEMS == 0 and not await server.forget():
                return {}
            cold.append(await server.ask(replace(ask, reuse=False)))
        others = [(await ask_all(server, asks, 1)).answers]
        for at_once in (1, self.at_once):
            await server.forget()
            others.append((await ask_all(server, asks, at_once)).answers)
        return {
            "texts_changed": _changed([answer.text for answer in cold], [_texts(run) for run in others]),
            "logprobs_changed": _changed(
                [answer.logprobs for answer in cold], [_logprobs(run) for run in others]
            ),
        }

    def _ask(self, prompts: Prompts, trial: int, number: int) -> Ask:
        shared = prompts.words(self.shared_words, self.name, trial, "shared", number % SYSTEMS)
        own = prompts.words(12, self.name, trial, number)
        return Ask(f"{shared}\n{own}\n", self.max_tokens, logprobs=True)


def _texts(answers: Sequence[Answer]) -> list[object]:
    return [answer.text for answer in answers]


def _logprobs(answers: Sequence[Answer]) -> list[object]:
    return [answer.logprobs for answer in answers]


def _changed(cold: Sequence[object], runs: Sequence[Sequence[object]]) -> int:
    """Prompts whose answer differs from the cold one in at least one of the runs."""
    return sum(any(run[i] != cold[i] for run in runs) for i in range(len(cold)))


def case(size: Size) -> Exactness:
    return Exactness(
        prompts=sized(size, quick=6, normal=12, full=40, scout=6),
        shared_words=sized(size, quick=24, normal=100, full=200, scout=50),
        max_tokens=sized(size, quick=4, normal=24, scout=6),
    )
