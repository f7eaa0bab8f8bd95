"""How fast text is written once the prompt is read: one stream alone, and several together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..asking import Ask, Server
from ..needs import Needs
from ..prompts import Prompts
from ..rows import Goal, Measure
from ..sizes import Size, sized
from .base import ask_all

PROMPT_TOKENS = 50
REPETITION = Measure("repetition", "share of four words that came before", "lower", counted=True)
"""Greedy answers of small models go in circles, which helps a server that speculates: the reader must know how much."""


@dataclass(frozen=True, slots=True)
class DecodeAlone:
    """Tokens after the first over the time from the first to the last."""

    tokens: int
    pairs: int
    name = "decode_1"
    like = "decode_1"
    needs = Needs(1)
    short = True
    measures = (Measure("decode", "tokens/s", "higher", Goal("ratio", "at least", 1.3)), REPETITION)

    @property
    def regime(self) -> Mapping[str, Any]:
        return {"prompt_tokens": PROMPT_TOKENS, "max_tokens": self.tokens, "at_once": 1}

    async def run(self, server: Server, prompts: Prompts, trial: int) -> Mapping[str, float]:
        answer = await server.ask(Ask(prompts.piece(PROMPT_TOKENS, self.name, trial), self.tokens))
        return {"decode": (answer.tokens - 1) / answer.decoding, "repetition": repetition([answer.text])}


@dataclass(frozen=True, slots=True)
class DecodeTogether:
    """All tokens of all streams over the whole time; reading the short prompts is in it, for both servers."""

    tokens: int
    streams: int
    pairs: int
    short = True
    measures = (Measure("decode", "tokens/s", "higher", Goal("ratio", "at least", 1.5)), REPETITION)

    @property
    def name(self) -> str:
        return f"decode_{self.streams}"

    @property
    def like(self) -> str:
        return self.name

    @property
    def needs(self) -> Needs:
        return Needs(self.streams)

    @property
    def regime(self) -> Mapping[str, Any]:
        return {"prompt_tokens": PROMPT_TOKENS, "max_tokens": self.tokens, "at_once": self.streams}

    async def run(self, server: Server, prompts: Prompts, trial: int) -> Mapping[str, float]:
        asks = [
            Ask(prompts.piece(PROMPT_TOKENS, self.name, trial, stream), self.tokens)
            for stream in range(self.streams)
        ]
        timed = await ask_all(server, asks, self.streams)
        texts = [answer.text for answer in timed.answers]
        return {"decode": timed.tokens / timed.seconds, "repetition": repetition(texts)}


def repetition(texts: Sequence[str]) -> float:
    """Of all runs of four words, the share that stands earlier in the same text too."""
    again = total = 0
    for text in texts:
        words = text.split()
        seen: set[tuple[str, ...]] = set()
        for start in range(len(words) - 3):
            four = tuple(words[start : start + 4])
            again += four in seen
            total += 1
            seen.add(four)
    return again / max(total, 1)


def alone(size: Size) -> DecodeAlone:
    return DecodeAlone(
        tokens=sized(size, quick=8, normal=128, scout=32), pairs=sized(size, quick=2, normal=7)
    )


def together(size: Size) -> DecodeTogether:
    return DecodeTogether(
        tokens=sized(size, quick=8, normal=128, scout=32), streams=8, pairs=sized(size, quick=2, normal=5)
    )
