"""Chats that come back in turns while the cache has room for a part of them: order and eviction decide."""

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
from ..rows import Measure
from ..sizes import Size, sized
from .base import Timed


@dataclass(frozen=True, slots=True)
class StarvedChat:
    """All conversations have their first turn, then all their second: who comes back was away for long."""

    conversations: int
    turns: int
    user_words: int
    max_tokens: int
    kv_tokens: int
    at_once: int
    pairs: int
    name = "starved_chat"
    like = "multi_turn"
    short = False
    measures = (
        Measure("throughput", "turns/s", "higher"),
        Measure("ttft_p95", "ms", "lower"),
    )

    @property
    def needs(self) -> Needs:
        return Needs(self.at_once, context=2048, kv_tokens=self.kv_tokens)

    @property
    def regime(self) -> Mapping[str, Any]:
        return {
            "conversations": self.conversations,
            "turns": self.turns,
            "user_words": self.user_words,
            "max_tokens": self.max_tokens,
            "at_once": self.at_once,
            "room": f"{self.kv_tokens} tokens of KV for each server",
        }

    async def run(self, server: Server, prompts: Prompts, trial: int) -> Mapping[str, float]:
        if server.process is None:
            return {}  # its memory is what it is
        talks: list[list[Message]] = [[] for _ in range(self.conversations)]
        gate = asyncio.Semaphore(self.at_once)

        async def turn(number: int, count: int) -> Answer:
            said = prompts.words(self.user_words, self.name, trial, number, count)
            talks[number].append(Message("user", said))
            async with gate:
                answer = await server.ask(Ask(tuple(talks[number]), self.max_tokens))
            talks[number].append(Message("assistant", answer.text))
            return answer

        start = time.perf_counter()
        answers: list[Answer] = []
        for count in range(self.turns):
            answers += await asyncio.gather(*(turn(number, count) for number in range(self.conversations)))
        seconds = time.perf_counter() - start
        timed = Timed(tuple(answers), seconds)
        return {"throughput": timed.throughput, "ttft_p95": timed.first_token_ms(0.95)}


def case(size: Size) -> StarvedChat:
    return StarvedChat(
        conversations=sized(size, quick=3, normal=12, scout=8),
        turns=sized(size, quick=2, normal=3, scout=2),
        user_words=sized(size, quick=24, normal=200, scout=50),
        max_tokens=sized(size, quick=4, normal=24, scout=6),
        kv_tokens=4096,
        at_once=4,
        pairs=sized(size, quick=1, normal=3),
    )
