"""How fast text is written once the prompt is read: one stream alone, and several together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..asking import Ask, Server
from ..prompts import Prompts
from ..rows import Goal, Measure
from ..sizes import Size, sized
from .base import ask_all

PROMPT_TOKENS = 50


@dataclass(frozen=True, slots=True)
class DecodeAlone:
    """Tokens after the first over the time from the first to the last."""

    tokens: int
    pairs: int
    name = "decode_1"
    slots = 1
    measures = (Measure("decode", "tokens/s", "higher", Goal("ratio", "at least", 0.9)),)

    @property
    def regime(self) -> Mapping[str, Any]:
        return {"prompt_tokens": PROMPT_TOKENS, "max_tokens": self.tokens, "at_once": 1}

    async def run(self, server: Server, prompts: Prompts, trial: int) -> Mapping[str, float]:
        answer = await server.ask(Ask(prompts.ids(PROMPT_TOKENS, self.name, trial), self.tokens))
        return {"decode": (self.tokens - 1) / answer.decoding}


@dataclass(frozen=True, slots=True)
class DecodeTogether:
    """All tokens of all streams over the whole time; reading the short prompts is in it, for both servers."""

    tokens: int
    streams: int
    pairs: int
    measures = (Measure("decode", "tokens/s", "higher", Goal("ratio", "at least", 1.5)),)

    @property
    def name(self) -> str:
        return f"decode_{self.streams}"

    @property
    def slots(self) -> int:
        return self.streams

    @property
    def regime(self) -> Mapping[str, Any]:
        return {"prompt_tokens": PROMPT_TOKENS, "max_tokens": self.tokens, "at_once": self.streams}

    async def run(self, server: Server, prompts: Prompts, trial: int) -> Mapping[str, float]:
        asks = [
            Ask(prompts.ids(PROMPT_TOKENS, self.name, trial, stream), self.tokens)
            for stream in range(self.streams)
        ]
        timed = await ask_all(server, asks, self.streams)
        return {"decode": self.streams * self.tokens / timed.seconds}


def alone(size: Size) -> DecodeAlone:
    return DecodeAlone(tokens=sized(size, quick=8, normal=128), pairs=sized(size, quick=2, normal=7))


def together(size: Size) -> DecodeTogether:
    return DecodeTogether(
        tokens=sized(size, quick=8, normal=128), streams=8, pairs=sized(size, quick=2, normal=5)
    )
