"""Hit rates and load of a whole trace beside times of a part of it.

A part says little of what is reused in an hour, and nothing of whether replicas keep up with it. So each design is
replayed as well, over all of the trace, through as many real caches as it has replicas, behind its router and in its
pages (`fleet_replay`): that is its hit rate, and what is left to compute, in full steps, against the time that there
is, its load. What requests that run at once cost in hits is not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from sapwood.sim.demand import beyond_context
from sapwood.sim.design import Case, Design, Judge, Outcome
from sapwood.sim.engine_spec import EngineSpec
from sapwood.sim.fleet_replay import fleet_replay
from sapwood.sim.load import busy_seconds
from sapwood.sim.progress import Progress
from sapwood.sim.stored import over_trace
from sapwood.sim.trace import Trace
from sapwood.sim.traffic import with_traffic


@dataclass(frozen=True, slots=True)
class _Whole:
    """Attributes:
    load: on hardware as fast as the cost model says; None where the trace takes no time.
    """

    hit_rate: float
    load: float | None


@dataclass(frozen=True, slots=True)
class _Question:
    """All that an answer depends on, the order of the queue left out."""

    design: Design
    traffic: float


@dataclass(frozen=True, slots=True, eq=False)
class WholeRates:
    """A judge whose times are those of `judge`, and whose hit rates and load are those of `trace`.

    Where `judge` simulates all of the trace its hit rates are better, and with `hits` false they stay.

    Of a request beyond the context of the model nothing is named in `trace`, see `without_names`.
    """

    judge: Judge
    trace: Trace
    engine: EngineSpec
    workers: int | None = None
    progress: Progress | None = None
    hits: bool = True
    _known: dict[_Question, _Whole] = field(default_factory=dict, init=False, repr=False)

    def __call__(self, cases: list[Case]) -> list[Outcome]:
        outcomes = self.judge(cases)
        self._ask([_question(case) for case in cases])
        return [self._with_whole(case, outcome) for case, outcome in zip(cases, outcomes, strict=True)]

    def _with_whole(self, case: Case, outcome: Outcome) -> Outcome:
        whole = self._known[_question(case)]
        load = None if whole.load is None else whole.load / case.speed
        return replace(outcome, hit_rate=whole.hit_rate if self.hits else outcome.hit_rate, load=load)

    def _ask(self, questions: Sequence[_Question]) -> None:
        new = [question for question in dict.fromkeys(questions) if question not in self._known]
        for traffic in sorted({question.traffic for question in new}):
            asked = [question for question in new if question.traffic == traffic]
            designs = [question.design for question in asked]
            self._known.update(zip(asked, self._replayed(traffic, designs), strict=True))

    def _replayed(self, traffic: float, designs: list[Design]) -> list[_Whole]:
        return over_trace(
            partial(_whole, engine=self.engine),
            with_traffic(self.trace, traffic),
            designs,
            workers=self.workers,
            progress=self.progress,
            what="replaying",
        )


def _question(case: Case) -> _Question:
    return _Question(replace(case.design, schedule_policy="default"), case.traffic)


def _whole(trace: Trace, design: Design, engine: EngineSpec) -> _Whole:
    found = fleet_replay(trace, design, engine.cache, engine.cost)
    served = ~found.refused & ~beyond_context(trace, engine.context)
    busy = busy_seconds(
        trace.where(served), found.reused[served], engine.cost, engine.scheduler, design.capacity_tokens
    )
    load = busy / (trace.seconds * design.replicas) if trace.seconds else None
    return _Whole(found.hit_rate(trace), load)
