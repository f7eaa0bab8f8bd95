"""What a whole trace has that no replica could hold, beside times of a part of it, which may lack the longest."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sapwood.sim.demand import Demand
from sapwood.sim.design import Case, Judge, Outcome


@dataclass(frozen=True, slots=True, eq=False)
class WholeRefusals:
    """A judge whose requests, and those refused, are those of `demand`, and all else is as `judge` says."""

    judge: Judge
    demand: Demand

    def __call__(self, cases: list[Case]) -> list[Outcome]:
        return [
            replace(
                outcome, requests=self.demand.requests, refused=self.demand.refused(case.design.pool_tokens)
            )
            for case, outcome in zip(cases, self.judge(cases), strict=True)
        ]
