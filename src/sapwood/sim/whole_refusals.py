"""What a whole trace has that no replica could hold, beside times of a part of it, which may lack the longest."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sapwood.sim.demand import Demand
from sapwood.sim.design import Case, Judge, Outcome
from sapwood.sim.trace import Trace
from sapwood.sim.traffic import with_traffic


@dataclass(frozen=True, slots=True, eq=False)
class WholeRefusals:
    """A judge whose requests, and those refused, are those of `trace` under the traffic of the case.

    All else is as `judge` says.

    Attributes:
        context: longest sequence that the model reads; None sets no limit.
        most_tokens: of the largest pool that may be chosen: what it refuses no design serves.
    """

    judge: Judge
    trace: Trace
    context: int | None
    most_tokens: int
    _demands: dict[float, Demand] = field(default_factory=dict, init=False, repr=False)

    def __call__(self, cases: list[Case]) -> list[Outcome]:
        return [self._of_all(case, outcome) for case, outcome in zip(cases, self.judge(cases), strict=True)]

    def _of_all(self, case: Case, outcome: Outcome) -> Outcome:
        demand = self._demand(case.traffic)
        return replace(
            outcome,
            requests=demand.requests,
            refused=demand.refused(case.design.pool_tokens),
            refused_by_all=demand.refused(self.most_tokens),
        )

    def _demand(self, traffic: float) -> Demand:
        """Whole copies of the trace have so many times each length; where sessions are drawn it depends on which."""
        if traffic not in self._demands:
            self._demands[traffic] = Demand.of(with_traffic(self.trace, traffic), self.context)
        return self._demands[traffic]
