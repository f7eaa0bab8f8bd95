"""The same prompt again: time to the first token, absolute and as a share of the cold one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..asking import Ask, Server
from ..needs import Needs
from ..prompts import Prompts
from ..rows import Goal, Measure
from ..sizes import Size, sized
from ..stats import median


@dataclass(frozen=True, slots=True)
class ExactRepeat:
    tokens: int
    repeats: int
    pairs: int
    name = "exact_repeat"
    like = "exact_repeat"
    needs = Needs(1)
    short = True
    measures = (
        Measure("ttft_warm", "ms", "lower", Goal("ratio", "at most", 0.5)),
        Measure("ttft_warm_over_cold", "share", "lower", Goal("ours", "at most", 0.05)),
        Measure("reused", "tokens", "higher"),
    )

    @property
    def regime(self) -> Mapping[str, Any]:
        return {"prompt_tokens": self.tokens, "max_tokens": 1, "at_once": 1, "repeats": self.repeats}

    async def run(self, server: Server, prompts: Prompts, trial: int) -> Mapping[str, float]:
        ask = Ask(prompts.piece(self.tokens, self.name, trial), 1)
        cold = await server.ask(ask)
        warm = [await server.ask(ask) for _ in range(self.repeats)]
        ttft = median([answer.first_token for answer in warm])
        values = {"ttft_warm": 1e3 * ttft, "ttft_warm_over_cold": ttft / cold.first_token}
        reused = [answer.cached_tokens for answer in warm if answer.cached_tokens is not None]
        return values | ({"reused": median(reused)} if reused else {})


def case(size: Size) -> ExactRepeat:
    return ExactRepeat(
        tokens=sized(size, quick=64, normal=2000, scout=500),
        repeats=sized(size, quick=1, normal=3, scout=1),
        pairs=sized(size, quick=2, normal=5),
    )
