"""From goals to a plan: the fewest replicas that reach them, then the least memory, by simulation.

Replicas cost more than memory, so they come first. More replicas and more memory are taken to make nothing worse
(the simulations that the answer rests on are kept and shown, so that a reader can see it).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

from sapwood.sim.design import Case, Design, Judge, Outcome, Row
from sapwood.sim.goals import Goals, Shortfall
from sapwood.sim.least import least
from sapwood.sim.progress import Progress
from sapwood.sim.space import Space
from sapwood.sim.trial import Trial

CLEARLY = 0.98
"""A time is clearly less than another from this share of it on; closer ones are left to the preferred choice."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Attributes:
    answer: what to run; the nearest there is where no design reaches the goals.
    shortfalls: by which goals it fails; none if it reaches them all.
    price_per_hour: of all replicas; None where nobody said what one costs.
    tried: every simulation of the search, in order.
    """

    goals: Goals
    answer: Row
    shortfalls: tuple[Shortfall, ...]
    price_per_hour: float | None
    tried: tuple[Row, ...]

    @property
    def met(self) -> bool:
        return not self.shortfalls


class Planner:
    """Seeks in a space, asking a judge as seldom as it can.

    Args:
        price: of a replica's hour, in any currency; None if it is not known.
    """

    def __init__(
        self, goals: Goals, space: Space, judge: Judge, price: float | None, progress: Progress | None = None
    ) -> None:
        self.goals, self.space, self.price = goals, space, price
        self.trial = Trial(judge, progress)

    def plan(self) -> Plan:
        """The cheapest design found to reach the goals, or the one that comes nearest."""
        enough = self._enough_replicas(self.space.largest)
        if enough is None:
            return self._as_plan(self._nearest())
        best = self._best_of(enough)
        fewer = self._enough_replicas(best, most=best.replicas - 1)
        return self._as_plan(self._least_memory(fewer or best))

    def least_replicas(self, design: Design, traffic: float = 1.0, speed: float = 1.0) -> int | None:
        """With all else as it is; None if no number that may be chosen is enough."""
        found = self._enough_replicas(design, traffic=traffic, speed=speed)
        return None if found is None else found.replicas

    def reaches(self, design: Design, traffic: float = 1.0, speed: float = 1.0) -> bool:
        """Whether it meets all goals. One beyond the budget is not simulated."""
        if self.goals.of_budget(design, self.price):
            return False
        return self.meets(design, self.trial.one(design, traffic, speed))

    def meets(self, design: Design, outcome: Outcome) -> bool:
        """Whether this outcome of it does."""
        return not self.goals.shortfalls(design, outcome, self.price)

    def _enough_replicas(
        self, design: Design, most: int | None = None, traffic: float = 1.0, speed: float = 1.0
    ) -> Design | None:
        """With as much memory each as the budget leaves."""
        last = self.space.most_replicas if most is None else most
        designs = [
            sized
            for count in range(self.space.least_replicas, last + 1)
            if (sized := self._within_budget(replace(design, replicas=count))) is not None
        ]
        return least(designs, lambda each: self.reaches(each, traffic, speed))

    def _within_budget(self, design: Design) -> Design | None:
        """With less memory if need be; None if there is too little money, or memory, for any."""
        sizes = [size for size in self.space.capacities if size <= design.capacity_tokens]
        for size in reversed(sizes or [design.capacity_tokens]):
            sized = replace(design, capacity_tokens=size)
            if not self.goals.of_budget(sized, self.price):
                return sized
        return None

    def _best_of(self, design: Design) -> Design:
        """With the best of each choice other than memory and replicas, if together they are better than alone."""
        kinds = self.space.alternatives(design)
        self.trial.many([Case(each) for kind in kinds for each in kind])
        chosen = [self._soonest((design, *kind)) for kind in kinds]
        return self._soonest((design, *chosen, _together(design, chosen)))

    def _soonest(self, designs: Sequence[Design]) -> Design:
        """Whose first tokens come clearly sooner than with the first, if it reaches the goals; else the first."""
        outcomes = self.trial.many([Case(each) for each in designs])
        best = designs[0]
        for each in designs[1:]:
            outcome = outcomes[Case(each)]
            sooner = outcome.ttft_p95 < CLEARLY * outcomes[Case(best)].ttft_p95
            best = each if sooner and not self.goals.of_service(outcome) else best
        return best

    def _least_memory(self, design: Design) -> Design:
        """Where it is too little for `design`, another policy, order or routing may make it enough."""
        sizes = [size for size in self.space.capacities if size < design.capacity_tokens]
        found = bisect_left(sizes, True, key=lambda size: self.reaches(self._made_do(design, size)))
        return self._made_do(design, sizes[found]) if found < len(sizes) else design

    def _made_do(self, design: Design, size: int) -> Design:
        smaller = replace(design, capacity_tokens=size)
        return smaller if self.reaches(smaller) else self._best_of(smaller)

    def _nearest(self) -> Design:
        """When nothing reaches the goals: what misses them by the least."""
        if not self.trial.rows:
            return self._within_budget(self.space.largest) or self.space.largest
        return min(self.trial.rows, key=lambda row: self._distance(row.design, row.outcome)).design

    def _distance(self, design: Design, outcome: Outcome) -> float:
        return max((short.ratio for short in self.goals.shortfalls(design, outcome, self.price)), default=1.0)

    def _as_plan(self, design: Design) -> Plan:
        outcome = self.trial.one(design)
        return Plan(
            self.goals,
            Row(Case(design), outcome),
            self.goals.shortfalls(design, outcome, self.price),
            None if self.price is None else self.price * design.replicas,
            self.trial.rows,
        )


def _together(design: Design, chosen: Iterable[Design]) -> Design:
    """All that any of `chosen` has and `design` has not."""
    changes = {
        each.name: getattr(other, each.name)
        for other in chosen
        for each in fields(Design)
        if getattr(other, each.name) != getattr(design, each.name)
    }
    return replace(design, **changes)
