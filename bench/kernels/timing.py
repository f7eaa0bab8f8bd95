"""Timing of small calls: in turns, each long enough to be measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..sizes import Size, sized

SETTLE_SECONDS = 0.05
"""Between turns: the threads of a BLAS spin for a while after its last call, and would take the next one's cores."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """Attributes:
    count: how often each function gets its turn.
    seconds: least time of one turn; functions are called as often as that takes.
    """

    count: int
    seconds: float

    @staticmethod
    def of(size: Size) -> Rounds:
        return Rounds(sized(size, quick=2, normal=5), sized(size, quick=0.0, normal=0.04, full=0.2))


def in_turns(functions: Mapping[str, Callable[[], object]], rounds: Rounds) -> dict[str, list[float]]:
    """Seconds per call of each function, one value for each round: a b c, a b c, …"""
    calls = {name: _calls(function, rounds.seconds) for name, function in functions.items()}
    taken: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds.count):
        for name, function in functions.items():
            time.sleep(SETTLE_SECONDS)
            taken[name].append(_time(function, calls[name]) / calls[name])
    return taken


def _calls(function: Callable[[], object], seconds: float) -> int:
    """How many calls take at least `seconds`; the calls that find it out are also the warm-up."""
    calls = 1
    while (taken := _time(function, calls)) < seconds:
        calls = max(calls + 1, min(calls * 8, int(1.2 * calls * seconds / taken) if taken else calls * 8))
    return calls


def _time(function: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return time.perf_counter() - start
