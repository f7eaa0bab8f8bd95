"""The server ends and is started again; then comes a prompt that it has answered before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..asking import Ask, Server
from ..needs import Needs
from ..prompts import Prompts
from ..rows import Measure
from ..sizes import Size, sized


@dataclass(frozen=True, slots=True)
class Restart:
    """The start itself is not in the time; the first request's own first steps are, as its user waits for them."""

    tokens: int
    pairs: int
    name = "restart"
    like = "cold_prefill"
    short = False
    needs = Needs(1)
    measures = (
        Measure("ttft", "ms", "lower"),
        Measure("reused", "tokens", "higher", counted=True),
    )

    @property
    def regime(self) -> Mapping[str, Any]:
        return {"prompt_tokens": self.tokens, "max_tokens": 1}

    async def run(self, server: Server, prompts: Prompts, trial: int) -> Mapping[str, float]:
        if server.process is None:
            return {}
        ask = Ask(prompts.piece(self.tokens, self.name, trial), 1)
        await server.ask(ask)
        await server.process.restart()
        answer = await server.ask(ask)
        reused = {} if answer.cached_tokens is None else {"reused": float(answer.cached_tokens)}
        return {"ttft": 1e3 * answer.first_token, **reused}


def case(size: Size) -> Restart:
    return Restart(tokens=sized(size, quick=64, normal=2000, scout=500), pairs=1)
