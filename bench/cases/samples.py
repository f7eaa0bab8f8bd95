"""Many answers drawn to one prompt: tokens of all of them over the whole time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..asking import Ask, Server
from ..needs import Needs
from ..prompts import Prompts
from ..rows import Goal, Measure
from ..sizes import Size, sized


@dataclass(frozen=True, slots=True)
class Samples:
    """One request with `n` where the server has it, else as many requests at once."""

    samples: int
    prompt_tokens: int
    max_tokens: int
    pairs: int
    name = "samples"
    like = "samples"
    short = False
    measures = (Measure("throughput", "tokens/s", "higher", Goal("ratio", "at least", 1.8)),)

    @property
    def needs(self) -> Needs:
        return Needs(self.samples)

    @property
    def regime(self) -> Mapping[str, Any]:
        return {
            "samples": self.samples,
            "prompt_tokens": self.prompt_tokens,
            "max_tokens": self.max_tokens,
            "temperature": 1,
        }

    async def run(self, server: Server, prompts: Prompts, trial: int) -> Mapping[str, float]:
        prompt = prompts.piece(self.prompt_tokens, self.name, trial)
        if server.abilities.samples:
            asks = [Ask(prompt, self.max_tokens, samples=self.samples, temperature=1.0, seed=trial)]
        else:
            seeds = range(trial * self.samples, (trial + 1) * self.samples)
            asks = [Ask(prompt, self.max_tokens, temperature=1.0, seed=seed) for seed in seeds]
        start = time.perf_counter()
        answers = await asyncio.gather(*(server.ask(ask) for ask in asks))
        seconds = time.perf_counter() - start
        return {"throughput": sum(answer.tokens for answer in answers) / seconds}


def case(size: Size) -> Samples:
    return Samples(
        samples=16 if size != "quick" else 3,
        prompt_tokens=sized(size, quick=64, normal=1500, scout=375),
        max_tokens=sized(size, quick=4, normal=64, scout=16),
        pairs=sized(size, quick=1, normal=3),
    )
