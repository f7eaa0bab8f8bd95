"""Who takes part: ours, peers that are started in the setting that suits a case, servers that run already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .asking import Server
from .cases import Case
from .document import tell
from .errors import BenchError
from .needs import Needs
from .processes import Launch, Pool
from .prompts import Prompts
from .rows import tidy

SCOUTING_SEED = 7919
"""What scouts ask has nothing in common with what is measured."""


@dataclass(frozen=True, slots=True)
class Entrant:
    """Attributes:
    launches: its settings for a case, or nobody can start it.
    server: it runs already.
    floor: takes part in short cases alone.
    """

    name: str
    launches: Callable[[Needs], Sequence[Launch]] | None = None
    server: Server | None = None
    floor: bool = False

    def candidates(self, case: Case) -> Sequence[Launch]:
        """Raises BenchError."""
        return () if self.launches is None else self.launches(case.needs)


@dataclass(frozen=True, slots=True)
class Choice:
    """Attributes:
    tried: the settings that were tried in a smaller version of the case, with the value of its first measure.
    """

    server: Server
    tried: str = ""


@dataclass(slots=True)
class Scouts:
    """Finds the setting of each entrant that does best in a small version of a case, and remembers it by name."""

    pool: Pool
    prompts: Prompts
    _found: dict[tuple[str, str], str] = field(default_factory=dict)

    async def choose(self, entrant: Entrant, case: Case, small: Case) -> Choice | None:
        """None where the entrant takes no part. Raises BenchError where none of its settings works."""
        if entrant.server is not None:
            return Choice(entrant.server)
        launches = entrant.candidates(case)
        if not launches:
            return None
        known = self._found.get((entrant.name, case.like))
        for launch in launches:
            if len(launches) == 1 or launch.setting == known:
                return Choice(await self.pool.get(launch))
        return await self._scout(entrant, case, small)

    async def _scout(self, entrant: Entrant, case: Case, small: Case) -> Choice:
        scores: dict[Launch, float] = {}
        failures: list[BenchError] = []
        for launch in entrant.candidates(case):
            try:
                scores[launch] = await self._score(await self.pool.get(launch), small)
            except BenchError as error:
                tell(f"{entrant.name} ({launch.setting}): {error}")
                failures.append(error)
        if not scores:
            raise failures[0]
        better = max if case.measures[0].better == "higher" else min
        best = better(scores, key=lambda launch: scores[launch])
        tell(f"{case.name}: {entrant.name} is at its best with {best.setting}")
        self._found[entrant.name, case.name] = best.setting
        tried = " · ".join(f"{launch.setting} {tidy(score):.4g}" for launch, score in scores.items())
        return Choice(await self.pool.get(best), tried)

    async def _score(self, server: Server, small: Case) -> float:
        other = Prompts(self.prompts.seed + SCOUTING_SEED, self.prompts.form)
        values = await small.run(server, other, 0)
        name = small.measures[0].name
        if name not in values:
            raise BenchError(f"{server.name} cannot tell its {name} in {small.name}")
        return values[name]
