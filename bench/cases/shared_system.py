"""Many users behind one long system prompt, a few at a time: requests over the whole time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..asking import Ask, Server
from ..needs import Needs
from ..prompts import Prompts
from ..rows import Goal, Measure
from ..sizes import Size, sized
from .base import ask_all, joined


@dataclass(frozen=True, slots=True)
class SharedSystem:
    shared: int
    own: int
    requests: int
    max_tokens: int
    pairs: int
    name = "shared_system"
    like = "shared_system"
    at_once = 8
    short = False
    measures = (
        Measure("throughput", "requests/s", "higher", Goal("ratio", "at least", 1.8)),
        Measure("ttft_p50", "ms", "lower"),
        Measure("ttft_p95", "ms", "lower"),
    )

    @property
    def needs(self) -> Needs:
        return Needs(self.at_once)

    @property
    def regime(self) -> Mapping[str, Any]:
        return {
            "shared_tokens": self.shared,
            "own_tokens": self.own,
            "requests": self.requests,
            "max_tokens": self.max_tokens,
            "at_once": self.at_once,
        }

    async def run(self, server: Server, prompts: Prompts, trial: int) -> Mapping[str, float]:
        system = prompts.piece(self.shared, self.name, trial)
        asks = [
            Ask(joined(system, prompts.piece(self.own, self.name, trial, user)), self.max_tokens)
            for user in range(self.requests)
        ]
        return (await ask_all(server, asks, self.at_once)).under_load()


def case(size: Size) -> SharedSystem:
    return SharedSystem(
        shared=sized(size, quick=96, normal=1500, scout=375),
        own=sized(size, quick=16, normal=100, scout=25),
        requests=sized(size, quick=9, normal=48, scout=16),
        max_tokens=sized(size, quick=4, normal=32, scout=8),
        pairs=sized(size, quick=1, normal=3),
    )
