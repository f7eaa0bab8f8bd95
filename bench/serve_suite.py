"""Runs the serving cases: ours, peer, peer, ours, …; all stay up, only one is asked at a time."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .asking import Server
from .cases import Case
from .document import tell
from .entrants import Choice, Entrant, Scouts
from .errors import BenchError
from .noise import Moment, noise_between
from .processes import Pool
from .prompts import Prompts
from .rows import Row
from .stats import Pair

Values = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Sides:
    """Those who are asked in turn.

    Attributes:
        tried: by server, the settings that were tried and what they gave.
        floors: names of those that are asked in the first pair alone.
    """

    ours: Server
    peers: Sequence[Server] = ()
    tried: Mapping[str, str] = field(default_factory=dict)
    floors: frozenset[str] = frozenset()

    @property
    def in_turn(self) -> Sequence[Server]:
        return (self.ours, *self.peers)

    def moment(self) -> Moment:
        processes = [server.process for server in self.in_turn if server.process is not None]
        return Moment.now([pid for process in processes for pid in process.pids()])

    def notes(self, before: Moment) -> tuple[str, ...]:
        """How disturbed the time since `before` was; nothing can be said of servers that others started."""
        if any(server.process is None for server in self.in_turn):
            return ()
        return noise_between(before, self.moment()).notes()


@dataclass(frozen=True, slots=True)
class Contest:
    """Attributes:
    cases: each with its smaller version, by which settings are told apart.
    case_seconds: no further pair is begun once a case took so long.
    thorough: floors take part in the long cases too.
    """

    ours: Entrant
    peers: Sequence[Entrant]
    cases: Sequence[tuple[Case, Case]]
    prompts: Prompts
    case_seconds: float | None = None
    thorough: bool = False


@dataclass(frozen=True, slots=True)
class CaseResult:
    """Attributes:
    failures: peers that could not do it, and why.
    """

    rows: list[Row]
    failures: Sequence[str] = ()


async def run_contest(contest: Contest) -> AsyncIterator[CaseResult]:
    """Case by case. Raises BenchError where ours fails, or a peer that others started."""
    async with Pool() as pool:
        scouts = Scouts(pool, contest.prompts)
        for number, (case, small) in enumerate(contest.cases):
            wanted = [
                launch
                for later, _ in contest.cases[number:]
                for entrant in (contest.ours, *contest.peers)
                for launch in entrant.candidates(later)
            ]
            await pool.keep(wanted)
            yield await _one(contest, scouts, case, small)


async def _one(contest: Contest, scouts: Scouts, case: Case, small: Case) -> CaseResult:
    failures: list[str] = []
    choices: list[Choice] = []
    for entrant in (contest.ours, *contest.peers):
        if entrant.floor and not (case.short or contest.thorough):
            continue
        try:
            choice = await scouts.choose(entrant, case, small)
        except BenchError as error:
            if entrant is contest.ours or entrant.server is not None:
                raise
            tell(f"{entrant.name}: {error}")
            failures.append(f"{entrant.name}, {case.name}: {str(error).splitlines()[0]}")
            continue
        choices += [choice] if choice is not None else []
    if not choices or choices[0].server.name != contest.ours.name:
        return CaseResult([], failures)
    tried = {choice.server.name: choice.tried for choice in choices if choice.tried}
    floors = frozenset(entrant.name for entrant in contest.peers if entrant.floor)
    sides = Sides(choices[0].server, [choice.server for choice in choices[1:]], tried, floors)
    result = await run_case(case, sides, contest.prompts, contest.case_seconds)
    return replace(result, failures=[*failures, *result.failures])


async def run_case(case: Case, sides: Sides, prompts: Prompts, seconds: float | None = None) -> CaseResult:
    """Rows for each measure and peer; a peer that fails takes no further part in the case. Raises BenchError."""
    taken: dict[str, list[Values]] = {server.name: [] for server in sides.in_turn}
    failures: dict[str, str] = {}
    tallies = {server.name: replace(server.tally) for server in sides.in_turn}
    before, start = sides.moment(), time.perf_counter()
    for trial in range(case.pairs):
        tell(f"{case.name}: pair {trial + 1} of {case.pairs}")
        for server in sides.in_turn:
            if server.name in failures or (trial > 0 and server.name in sides.floors):
                continue
            try:
                taken[server.name].append(await case.run(server, prompts, trial))
            except BenchError as error:
                if server is sides.ours or server.process is None:
                    raise
                tell(f"{server.name}: {error}")
                failures[server.name] = f"{server.name}, {case.name}: {str(error).splitlines()[0]}"
        if seconds is not None and time.perf_counter() - start >= seconds:
            break
    notes = [*sides.notes(before), *_short_answers(sides, tallies)]
    peers = [server for server in sides.peers if server.name not in failures]
    return CaseResult(_rows(case, sides, peers, taken, notes), list(failures.values()))


def _rows(
    case: Case, sides: Sides, peers: Sequence[Server], taken: Mapping[str, list[Values]], notes: list[str]
) -> list[Row]:
    regime: dict[str, Any] = dict(case.regime)
    if sides.tried:
        regime["settings_tried"] = dict(sides.tried)
    ours = taken[sides.ours.name]
    rows: list[Row] = []
    for measure in case.measures:
        if not all(measure.name in values for values in ours):
            continue
        told = [p for p in peers if all(measure.name in values for values in taken[p.name])]
        for peer in told:
            pairs = [
                Pair(mine[measure.name], theirs[measure.name])
                for mine, theirs in zip(ours, taken[peer.name], strict=False)  # a floor has one
            ]
            rows.append(
                Row(
                    case.name,
                    measure,
                    pairs,
                    peer.name,
                    regime,
                    notes=notes,
                    remark=_remark(sides.ours, peer),
                )
            )
            notes = []  # once for each case is enough
        if not told:
            pairs = [Pair(values[measure.name], None) for values in ours]
            rows.append(Row(case.name, measure, pairs, None, regime, notes=notes, remark=sides.ours.setting))
            notes = []
    return rows


def _remark(ours: Server, peer: Server) -> str:
    settings = [f"ours {ours.setting}" if ours.setting else "", peer.setting]
    return "; ".join(setting for setting in settings if setting)


def _short_answers(sides: Sides, before: Mapping[str, Any]) -> list[str]:
    """Servers that could not be kept from ending early did less work, and must not pass for faster."""
    notes = []
    for server in sides.in_turn:
        wanted = server.tally.wanted - before[server.name].wanted
        generated = server.tally.generated - before[server.name].generated
        if generated < wanted:
            notes.append(
                f"{server.name} ended early: {generated} of {wanted} tokens; count its requests with care"
            )
    return notes
