"""Runs the serving cases: ours, peer, ours, peer, …; both stay up, only one is asked at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from .asking import Server
from .cases import Case
from .document import tell
from .noise import Moment, noise_between
from .prompts import Prompts
from .rows import Row
from .stats import Pair


@dataclass(frozen=True, slots=True)
class Sides:
    ours: Server
    peer: Server | None

    @property
    def in_turn(self) -> Sequence[Server]:
        return (self.ours,) if self.peer is None else (self.ours, self.peer)

    def moment(self) -> Moment:
        return Moment.now([server.pid for server in self.in_turn if server.pid is not None])

    def notes(self, before: Moment) -> tuple[str, ...]:
        """How disturbed the time since `before` was; nothing can be said of servers that others started."""
        if any(server.pid is None for server in self.in_turn):
            return ()
        return noise_between(before, self.moment()).notes()


OpenSides = Callable[[int], contextlib.AbstractAsyncContextManager[Sides]]
"""Brings up both servers for a number of slots, and takes them down again."""


async def run_cases(cases: Sequence[Case], open_sides: OpenSides, prompts: Prompts) -> list[Row]:
    """Rows in the order of the cases; servers are started once for each run of cases with equal slots."""
    rows: list[Row] = []
    for slots, group in groupby(cases, key=lambda case: case.slots):
        async with open_sides(slots) as sides:
            for case in group:
                rows += await run_case(case, sides, prompts)
    return rows


async def run_case(case: Case, sides: Sides, prompts: Prompts) -> list[Row]:
    taken: list[list[Mapping[str, float]]] = []
    before = sides.moment()
    for trial in range(case.pairs):
        tell(f"{case.name}: pair {trial + 1} of {case.pairs}")
        taken.append([await case.run(server, prompts, trial) for server in sides.in_turn])
    notes = sides.notes(before)
    rows = []
    for measure in case.measures:
        pairs = [_pair(values, measure.name) for values in taken if measure.name in values[0]]
        if not pairs:
            continue
        against = sides.peer.name if sides.peer and pairs[0].peer is not None else None
        rows.append(Row(case.name, measure, pairs, against, case.regime, notes=notes))
        notes = ()  # once for each case is enough
    return rows


def _pair(values: Sequence[Mapping[str, float]], name: str) -> Pair:
    return Pair(values[0][name], values[1].get(name) if len(values) > 1 else None)
