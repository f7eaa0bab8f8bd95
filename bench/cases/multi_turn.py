"""Conversations side by side; the real reply of each turn goes back into the next prompt, as text."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..answers import Answer
from ..asking import Ask, Message, Server
from ..needs import Needs
from ..prompts import Prompts
from ..rows import Goal, Measure
from ..sizes import Size, sized
from .base import Timed


@dataclass(frozen=True, slots=True)
class MultiTurn:
    """Four conversations share each system prompt. `at_once` conversations are under way at any time."""

    conversations: int
    turns: int
    system_words: int
    user_words: int
    max_tokens: int
    at_once: int
    pairs: int
    name = "multi_turn"
    like = "multi_turn"
    short = False
    measures = (
        Measure("throughput", "turns/s", "higher", Goal("ratio", "at least", 1.8)),
        Measure("ttft_p50", "ms", "lower"),
        Measure("ttft_p95", "ms", "lower", Goal("ratio", "at most", 0.5)),
        Measure("prompt_tokens", "tokens of all prompts", "lower", counted=True),
        Measure("peak_memory", "MiB", "lower", Goal("ratio", "at most", 1.2), counted=True),
    )

    @property
    def needs(self) -> Needs:
        return Needs(self.at_once)

    @property
    def regime(self) -> Mapping[str, Any]:
        return {
            "conversations": self.conversations,
            "turns": self.turns,
            "system_words": self.system_words,
            "user_words": self.user_words,
            "max_tokens": self.max_tokens,
            "at_once": self.at_once,
        }

    async def run(self, server: Server, prompts: Prompts, trial: int) -> Mapping[str, float]:
        if server.process is not None:
            server.process.forget_peak()
        gate = asyncio.Semaphore(self.at_once)

        async def one(conversation: int) -> list[Answer]:
            async with gate:
                return await self._converse(server, prompts, (trial, conversation))

        start = time.perf_counter()
        talks = await asyncio.gather(*(one(i) for i in range(self.conversations)))
        seconds = time.perf_counter() - start
        answers = [answer for talk in talks for answer in talk]
        values = Timed(tuple(answers), seconds).under_load()
        counts = [answer.prompt_tokens for answer in answers if answer.prompt_tokens is not None]
        if len(counts) == len(answers):
            values["prompt_tokens"] = sum(counts)
        if server.process is not None and (peak := server.process.peak_memory()) is not None:
            values["peak_memory"] = peak / 2**20
        return values

    async def _converse(self, server: Server, prompts: Prompts, key: tuple[int, int]) -> list[Answer]:
        trial, conversation = key
        system = prompts.words(self.system_words, self.name, trial, "system", conversation // 4)
        messages = [Message("system", system)]
        answers = []
        for turn in range(self.turns):
            asked = prompts.words(self.user_words, self.name, trial, conversation, turn)
            messages.append(Message("user", asked))
            answer = await server.ask(Ask(tuple(messages), self.max_tokens))
            messages.append(Message("assistant", answer.text))
            answers.append(answer)
        return answers


def case(size: Size) -> MultiTurn:
    return MultiTurn(
        conversations=sized(size, quick=2, normal=16, scout=8),
        turns=sized(size, quick=2, normal=5, scout=3),
        system_words=sized(size, quick=24, normal=920, scout=230),
        user_words=sized(size, quick=12, normal=40, scout=10),
        max_tokens=sized(size, quick=4, normal=48, scout=12),
        at_once=sized(size, quick=2, normal=8),
        pairs=sized(size, quick=1, normal=3),
    )
