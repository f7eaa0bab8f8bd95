"""From goals to a plan: the fewest replicas that reach them, then the least memory, by simulation.

Replicas cost more than memory, so they come first. It is taken for granted that more replicas and more memory do not
turn enough into too little, and not asked about each number of them; what was asked is kept and shown. Of policies,
orders and routings the preferred ones are asked about first; where they are not enough, the others are before
anything is added.
Larger pages can hardly make enough of what is not: other sizes are asked about at the end, for what was found alone.
A time decides between two designs only where each lies outside what the other may as well be (`interval`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

from sapwood.sim.design import Case, Design, Judge, Outcome, Row
from sapwood.sim.goals import Goals, Shortfall
from sapwood.sim.least import least
from sapwood.sim.load import keeping_up
from sapwood.sim.progress import Progress
from sapwood.sim.space import Space
from sapwood.sim.trial import Trial

CLEARLY = 0.98
"""Less is clearly less up to this share of more; figures that are closer are left to the preferred choice."""


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
        """The cheapest design found to reach the goals, or the one that comes nearest; for a budget alone the best."""
        found = self._cheapest() if self.goals.of_answers else self._best_for_the_budget()
        return self._as_plan(self._best(self._in_pages(found)) if found else self._nearest())

    def least_replicas(self, design: Design, traffic: float = 1.0, speed: float = 1.0) -> int | None:
        """With all else as it is; None if no number that may be chosen is enough."""
        found = least(self._sized(design), lambda each: self.reaches(each, traffic, speed))
        return None if found is None else found.replicas

    def reaches(self, design: Design, traffic: float = 1.0, speed: float = 1.0) -> bool:
        """Whether it meets all goals. One beyond the budget is not simulated."""
        if self.goals.of_budget(design, self.price):
            return False
        return self.meets(design, self.trial.one(design, traffic, speed))

    def meets(self, design: Design, outcome: Outcome) -> bool:
        """Whether this outcome of it does."""
        return not self.goals.shortfalls(design, outcome, self.price)

    # ---- goals: as little as is enough -----------------------------------------------------------------------

    def _cheapest(self) -> Design | None:
        """With the fewest replicas, with these the least memory, and with these the best of all other choices."""
        enough = self._fewest_replicas()
        return None if enough is None else self._best_of(self._least_memory(enough))

    def _fewest_replicas(self) -> Design | None:
        """All other choices are the preferred ones, enough or not."""
        sized = self._sized(self.space.largest)
        enough = least(sized, self.reaches)
        fewer = sized if enough is None else sized[: sized.index(enough)]
        return self._fewest_with_others(fewer) or enough

    def _fewest_with_others(self, sized: Sequence[Design]) -> Design | None:
        """For which some other choice is enough. The last is asked first: each question is several simulations."""
        return least(sized, self._can_reach) if sized and self._can_reach(sized[-1]) else None

    def _least_memory(self, design: Design) -> Design:
        smaller = [
            replace(design, capacity_tokens=size)
            for size in self.space.capacities
            if size < design.capacity_tokens
        ]
        found = bisect_left(smaller, True, key=self._can_reach)
        return smaller[found] if found < len(smaller) else design

    def _can_reach(self, design: Design) -> bool:
        """With some policy, order and routing."""
        return self.reaches(design) or self.reaches(self._best_of(design))

    def _sized(self, design: Design) -> list[Design]:
        """By ascending replicas, with as much memory each as the budget leaves."""
        counts = range(self.space.least_replicas, self.space.most_replicas + 1)
        found = (self._within_budget(replace(design, replicas=count)) for count in counts)
        return [each for each in found if each is not None]

    def _within_budget(self, design: Design) -> Design | None:
        """With less memory if need be; None if there is too little money, or memory, for any."""
        sizes = [size for size in self.space.capacities if size <= design.capacity_tokens]
        for size in reversed(sizes or [design.capacity_tokens]):
            sized = replace(design, capacity_tokens=size)
            if not self.goals.of_budget(sized, self.price):
                return sized
        return None

    # ---- a budget alone: as much as it buys ------------------------------------------------------------------

    def _best_for_the_budget(self) -> Design | None:
        """Of the sizes that it buys the cheapest that none beyond it is clearly better than."""
        bought = self._bought()
        if not bought:
            return None
        choices = sorted([*bought, *self._keeping_up(bought)], key=lambda each: each.replicas)
        return self._best_of(self._fewer(self._best(choices)))

    def _keeping_up(self, bought: Sequence[Design]) -> list[Design]:
        """The fewest that keep up, where a budget of memory can be divided among more than were bought."""
        outcomes = self.trial.many([Case(each) for each in bought])
        loads = [(each, outcomes[Case(each)].load) for each in bought]
        behind = [keeping_up(load, each.replicas) for each, load in loads if load is not None and load >= 1]
        if self.goals.total_tokens is None or not behind:
            return []
        counts = range(max(min(behind), self.space.least_replicas), self.space.most_replicas + 1)
        divided = [self._divided(self.goals.total_tokens, count) for count in counts]
        enough = least([each for each in divided if each is not None], self.reaches)
        return [] if enough is None else [enough]

    def _divided(self, total: int, count: int) -> Design | None:
        """So many replicas that have it all together; None where a size that may be chosen is larger than a share."""
        largest, share = self.space.largest, total // count
        if share < self.space.capacities[0]:
            return None
        return replace(largest, capacity_tokens=min(share, largest.capacity_tokens), replicas=count)

    def _fewer(self, design: Design) -> Design:
        """With the fewest replicas, more than half as many, that it is not clearly better than."""
        least_replicas = max(self.space.least_replicas, design.replicas // 2 + 1)
        fewer = [replace(design, replicas=count) for count in range(least_replicas, design.replicas)]
        return least([*fewer, design], lambda each: each == self._best((each, design))) or design

    def _bought(self) -> list[Design]:
        """Of each size as many replicas as can be had, if more than of a larger; of the largest half as many too."""
        found: list[Design] = []
        for size in reversed(self.space.capacities):
            most = self._most_replicas(replace(self.space.largest, capacity_tokens=size))
            if most is not None and (not found or most.replicas > found[-1].replicas):
                found.append(most)
        halves = found[:1]
        while halves and halves[-1].replicas // 2 >= self.space.least_replicas:
            halves.append(replace(halves[-1], replicas=halves[-1].replicas // 2))
        return [*reversed(halves), *found[1:]]

    def _most_replicas(self, design: Design) -> Design | None:
        counts = range(self.space.most_replicas, self.space.least_replicas - 1, -1)
        sized = (replace(design, replicas=count) for count in counts)
        return next((each for each in sized if not self.goals.of_budget(each, self.price)), None)

    # ---- which is better -------------------------------------------------------------------------------------

    def _best_of(self, design: Design) -> Design:
        """With the best of each choice other than memory and replicas, if together they are better than alone."""
        kinds = self.space.alternatives(design)
        self.trial.many([Case(each) for kind in kinds for each in kind])
        chosen = [self._best((design, *kind)) for kind in kinds]
        return self._best((design, *chosen, _together(design, chosen)))

    def _in_pages(self, design: Design) -> tuple[Design, ...]:
        """As it is, and with pages of other sizes."""
        return (design, *self.space.in_pages(design))

    def _best(self, designs: Sequence[Design]) -> Design:
        """The first, but for one that is better; and so on from that one."""
        outcomes = self.trial.many([Case(each) for each in designs])
        best = designs[0]
        for each in designs[1:]:
            if self._is_better(each, outcomes[Case(each)], best, outcomes[Case(best)]):
                best = each
        return best

    def _is_better(self, design: Design, outcome: Outcome, other: Design, than: Outcome) -> bool:
        """Misses the goals by less; by as much, and is clearly sooner or hits clearly more; for a budget hits first."""
        missed, others = self._missed(design, outcome), self._missed(other, than)
        if missed != others:
            return missed < others
        sooner = _clearly_sooner(outcome, than)
        more = _clearly_less(than.hit_rate, outcome.hit_rate)
        return ((sooner, more) if self.goals.of_answers else (more, sooner)) > (0, 0)

    def _missed(self, design: Design, outcome: Outcome) -> float:
        """1 if it reaches all goals; each that it misses makes it more."""
        return math.prod(short.ratio for short in self.goals.shortfalls(design, outcome, self.price))

    def _nearest(self) -> Design:
        """When nothing reaches the goals: what misses them by the least."""
        if not self.trial.rows:
            return replace(self.space.largest, capacity_tokens=self.space.capacities[0])
        self.trial.many([Case(each) for each in self._in_pages(self._closest())])
        return self._closest()

    def _closest(self) -> Design:
        """Of those tried."""
        return min(self.trial.rows, key=lambda row: self._distance(row.design, row.outcome)).design

    def _distance(self, design: Design, outcome: Outcome) -> tuple[float, float]:
        """By the goal that it misses most, and of equals by all of them."""
        shorts = self.goals.shortfalls(design, outcome, self.price)
        return max((short.ratio for short in shorts), default=1.0), self._missed(design, outcome)

    def _as_plan(self, design: Design) -> Plan:
        outcome = self.trial.one(design)
        return Plan(
            self.goals,
            Row(Case(design), outcome),
            self.goals.shortfalls(design, outcome, self.price),
            None if self.price is None else self.price * design.replicas,
            self.trial.rows,
        )


def _clearly_sooner(one: Outcome, other: Outcome) -> int:
    """As `_clearly_less` of the first tokens' p95, where that says more than so few requests can tell by chance."""
    within = [
        between is not None and between.holds(time)
        for between, time in (
            (one.ttft_p95_between, other.ttft_p95),
            (other.ttft_p95_between, one.ttft_p95),
        )
    ]
    return 0 if any(within) else _clearly_less(one.ttft_p95, other.ttft_p95)


def _clearly_less(one: float, other: float) -> int:
    """1 if it is, -1 if the other is, 0 if neither."""
    return (one < CLEARLY * other) - (other < CLEARLY * one)


def _together(design: Design, chosen: Iterable[Design]) -> Design:
    """All that any of `chosen` has and `design` has not."""
    changes = {
        each.name: getattr(other, each.name)
        for other in chosen
        for each in fields(Design)
        if getattr(other, each.name) != getattr(design, each.name)
    }
    return replace(design, **changes)
