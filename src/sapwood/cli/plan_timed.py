"""Times and plans by simulation, added to a report of curves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from sapwood.cli import plan_words as words
from sapwood.cli.plan_report import Curves, Line, Report, Timed
from sapwood.cli.plan_study import SHOWN, SIZES, Study
from sapwood.config import SchedulerConfig
from sapwood.errors import UsageError
from sapwood.sim import (
    TRIED_PAGES,
    TRIED_ROUTINGS,
    Case,
    Design,
    EngineSpec,
    Goals,
    Judge,
    Outcome,
    Planner,
    Progress,
    Row,
    SimulatingJudge,
    Space,
    WholeRates,
    WholeRefusals,
    Window,
    busiest,
    capacities_up_to,
    sensitivity,
    what_ifs,
)

WORK = 200_000
"""Tokens drawn, and steps of reading, in a simulation where nobody says how much to simulate: ten seconds or so."""


@dataclass(frozen=True, slots=True)
class TimedStudy:
    """Attributes:
    window: the part of the trace that is simulated.
    """

    study: Study
    window: Window
    progress: Progress

    @classmethod
    def of(cls, study: Study, progress: Progress) -> TimedStudy | None:
        """None where nothing is to be simulated. Raises UsageError if goals need it all the same, or cannot be."""
        ask, trace = study.ask, study.trace
        if ask.timed == 0:
            if goals_of(study).given:
                raise UsageError("goals need simulations", hint="leave --timed 0 out")
            return None
        if ask.timed:
            window = busiest(trace, np.ones(len(trace), np.int64), ask.timed)
        else:
            window = busiest(trace, trace.output_tokens + trace.prompt_tokens // ask.chunk_tokens + 1, WORK)
        timed = cls(study, window, progress)
        timed.goals()  # What is wrong with them is told before the long work.
        return timed

    def held(self) -> Row | None:
        """How all that there is does; None where goals or sizes are asked about instead."""
        study, ask = self.study, self.study.ask
        if self.goals().given or ask.capacities:
            return None
        unit = max(study.trace.unit_tokens, ask.page_size or 1)
        total = max(1, ask.most_tokens * (ask.replicas or 1) // unit) * unit
        case = self._case((ask.policies or SHOWN)[0], total)
        return Row(case, self._judge()([case])[0])

    def added(self, report: Report, held: Row | None = None) -> Report:
        """With times, and a plan where there are goals; `held` is what there is, where that is known already."""
        goals = self.goals()
        told = replace(report, timed=self._timed(), definitions={**report.definitions, **self._words()})
        return self._planned(told, goals) if goals.given else self._with_times(told, held)

    # ---- times of the curves' rows ---------------------------------------------------------------------------

    def _with_times(self, report: Report, held: Row | None) -> Report:
        ask = self.study.ask
        outcomes = {} if held is None else {held.case: held.outcome}
        cases = [case for case in self._rows_to_time(report.curves) if case not in outcomes]
        outcomes |= zip(cases, self._judge()(cases) if cases else [], strict=True)
        lines = tuple(self._line_with_times(line, outcomes) for line in report.curves.lines)
        found = replace(report, curves=replace(report.curves, lines=lines))
        if not outcomes:
            return found
        basis = held.case if held is not None else max(cases, key=lambda case: case.design.capacity_tokens)
        found = replace(found, basis=Row(basis, outcomes[basis]))
        return self._with_what_ifs(found, self._planner(self.goals()), basis.design) if ask.full else found

    def _rows_to_time(self, found: Curves) -> list[Case]:
        """The first policy at its last knee; all that was asked for by name; or all."""
        ask, first = self.study.ask, found.lines[0]
        fitting = [point.capacity_tokens for point in first.points if self._fits(point.capacity_tokens)]
        if ask.full:
            return [self._case(line.policy, size) for line in found.lines for size in fitting]
        if not ask.capacities:
            fitting = [knee.capacity_tokens for knee in found.knees[-1:] if knee.capacity_tokens in fitting]
        return [self._case(first.policy, size) for size in fitting]

    def _fits(self, total: int) -> bool:
        return total // (self.study.ask.replicas or 1) <= self.study.ask.most_tokens

    def _case(self, policy: str, total: int) -> Case:
        replicas = self.study.ask.replicas or 1
        size = max(1, total // replicas)
        return Case(
            replace(
                self._space().largest,
                capacity_tokens=size,
                replicas=replicas,
                eviction_policy=policy,  # type: ignore[arg-type]
            )
        )

    def _line_with_times(self, line: Line, outcomes: Mapping[Case, Outcome]) -> Line:
        points = [
            replace(point, outcome=outcomes.get(self._case(line.policy, point.capacity_tokens)))
            for point in line.points
        ]
        return replace(line, points=tuple(points))

    # ---- plans -----------------------------------------------------------------------------------------------

    def _planned(self, report: Report, goals: Goals) -> Report:
        planner = self._planner(goals)
        plan = planner.plan()
        return self._with_what_ifs(
            replace(report, goals=goals, plan=plan, basis=plan.answer), planner, plan.answer.design
        )

    def _with_what_ifs(self, report: Report, planner: Planner, design: Design) -> Report:
        if not self.study.ask.what_ifs:
            return report
        changed = what_ifs(planner, design, self.study.ask.most_tokens)
        return replace(report, what_ifs=changed, shifts=sensitivity(planner, design))

    def _planner(self, goals: Goals) -> Planner:
        price = self.study.ask.hardware.price_per_hour
        return Planner(goals, self._space(), self._judge(), price, self.progress)

    def _judge(self) -> Judge:
        study, ask = self.study, self.study.ask
        scheduler = SchedulerConfig(
            chunk_tokens=ask.chunk_tokens, max_running=ask.max_running, speculate="off"
        )
        engine = EngineSpec(study.cost, study.cache, scheduler, ask.model.context)
        judge: Judge = SimulatingJudge(study.trace, engine, ask.workers, self.progress, self.window)
        judge = WholeRates(judge, study.trace, engine, ask.workers, self.progress, hits=not self._whole)
        return WholeRefusals(judge, study.trace, ask.model.context, self._space().largest.pool_tokens)

    @property
    def _whole(self) -> bool:
        """Whether all of the trace is simulated."""
        return self.window.count == len(self.study.trace)

    def _space(self) -> Space:
        ask = self.study.ask
        return Space(
            self._sizes(),
            most_replicas=ask.replicas or 64,
            least_replicas=ask.replicas or 1,
            policies=ask.policies or ("default", "lru"),
            orders=(ask.schedule_policy,) if ask.schedule_policy else ("default", "fcfs"),
            routings=(ask.routing,) if ask.routing else TRIED_ROUTINGS,
            page_sizes=(ask.page_size,) if ask.page_size else TRIED_PAGES,
        )

    def _sizes(self) -> tuple[int, ...]:
        """Tokens of each replica: those asked for, or some that hold the longest request which a replica can hold."""
        study, ask = self.study, self.study.ask
        if ask.capacities:
            return tuple(sorted({each.tokens(ask.kv_bytes) for each in ask.capacities}))
        longest = study.demand.longest(ask.most_tokens)
        most = min(ask.most_tokens, max(longest, study.stored_tokens + study.longest_tokens))
        return tuple(size for size in capacities_up_to(most, 1, SIZES) if size >= longest)

    def goals(self) -> Goals:
        """Raises UsageError for sizes that none has."""
        study, goals, largest = self.study, goals_of(self.study), self._space().largest
        if goals.given and largest.capacity_tokens > study.ask.most_tokens:
            raise UsageError(
                f"--capacity: {largest.capacity_tokens:,} tokens are more than the {study.ask.most_tokens:,} that a "
                f"replica of {study.ask.hardware.name} has",
                hint="in a plan --capacity is the memory of each replica, not of all",
            )
        return goals

    # ---- words -----------------------------------------------------------------------------------------------

    def _timed(self) -> Timed:
        ask, window, arrivals = self.study.ask, self.window, self.study.trace.arrivals
        begin, end = arrivals[window.first], arrivals[window.first + window.count - 1]
        return Timed(
            window.count, float(end - begin), ask.chunk_tokens, ask.max_running, float(begin - arrivals[0])
        )

    def _words(self) -> Mapping[str, str]:
        ask = self.study.ask
        told = {
            "TTFT p95": "the longest of all but 5 %; where so few requests say little of it, bounds are told which it "
            "keeps 9 times in 10 (two of the times by their order, a binomial interval, which knows nothing of how "
            "times are spread); requests that follow each other share their luck, so the truth may lie further off",
            "TTFT": f"from arrival to first token, simulated over {self._part()}, with the scheduler that serves "
            f"({ask.chunk_tokens:,} tokens a step, {ask.max_running} running); what is refused never gets one",
            "TPOT": "time per further token of a reply, mean of each request",
            "hit rate of a design": self._hit_rate(),
            "busiest": "tokens computed by the busiest replica over the mean of all",
            "times": f"from {self.study.cost.name}",
        }
        told["load"] = (
            "what the whole trace leaves to compute, in full steps, over what all replicas can do in its time; from "
            "100 % on they fall behind, whatever the times of a part say, and meet no goals"
        )
        if self.study.ask.full or goals_of(self.study).given:
            told["traffic"] = (
                "so many times the users in the same time: copies of sessions that share nothing with the others, "
                "each begun up to a minute earlier or later; below 1, some of the sessions"
            )
        return told

    def _part(self) -> str:
        if self._whole:
            return "all requests, from empty caches"
        return (
            f"the {self.window.count:,} requests in a row, of {len(self.study.trace):,}, that ask for the most "
            f"tokens per second (from {words.seconds(self._timed().begins)} on), from caches that those before warmed"
        )

    def _hit_rate(self) -> str:
        counted = "prompt tokens reused / prompt tokens, the last token of a prompt never"
        if self._whole:
            return f"{counted}; simulated from empty caches"
        return (
            f"{counted}; the whole trace replayed through the caches of all replicas, behind the router and in the "
            "pages of the design, one request after another; what is refused is not reused"
        )


def goals_of(study: Study) -> Goals:
    ask, memory = study.ask, study.ask.budget.memory
    return Goals(
        ask.ttft_p95,
        ask.hit_rate,
        ask.budget.price_per_hour,
        None if memory is None else memory.tokens(ask.kv_bytes),
        ask.ttft_p50,
        ask.ttft_p99,
        ask.tpot_p95,
    )
