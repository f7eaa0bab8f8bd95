"""How fast a prompt that nobody has seen is read: tokens over the time to the first token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..asking import Ask, Server
from ..needs import Needs
from ..prompts import Prompts
from ..rows import Goal, Measure
from ..sizes import Size, sized


@dataclass(frozen=True, slots=True)
class ColdPrefill:
    tokens: int
    pairs: int
    name = "cold_prefill"
    like = "cold_prefill"
    needs = Needs(1)
    short = True
    measures = (Measure("prefill", "tokens/s", "higher", Goal("ratio", "at least", 1.2)),)

    @property
    def regime(self) -> Mapping[str, Any]:
        return {"prompt_tokens": self.tokens, "max_tokens": 1, "at_once": 1}

    async def run(self, server: Server, prompts: Prompts, trial: int) -> Mapping[str, float]:
        answer = await server.ask(Ask(prompts.piece(self.tokens, self.name, trial), 1))
        return {"prefill": self.tokens / answer.first_token}


def case(size: Size) -> ColdPrefill:
    return ColdPrefill(
        tokens=sized(size, quick=64, normal=2000, scout=500), pairs=sized(size, quick=2, normal=5)
    )
