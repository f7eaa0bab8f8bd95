"""The real scheduler and the real cache on a virtual clock, with answers from a script instead of a model."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sapwood.cache import Namespace, PrefixCache
from sapwood.config import CacheConfig, SchedulerConfig
from sapwood.plan import SequenceResult, SequenceWork, StepPlan, StepResult
from sapwood.sched import Outcome, Refused, Scheduler
from sapwood.sched import Sequence as Running
from sapwood.types import Request, SamplingParams, SeqId, TokenLogprob

from ..errors import BenchError

_SPACE = Namespace("bench")


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """Attributes:
    answer: what will be drawn, at least one token.
    after: place in the list of arrivals of the one that must be answered first; it comes no sooner.
    cold: whether its wait is asked for.
    """

    at: float
    prompt: NDArray[np.int32]
    answer: NDArray[np.int32]
    after: int | None = None
    cold: bool = False


@dataclass(frozen=True, slots=True)
class Machine:
    """What is simulated. A step takes `step_seconds` and `token_seconds` for each token that it computes."""

    pages: int
    cache: CacheConfig
    scheduler: SchedulerConfig
    token_seconds: float
    step_seconds: float = 0.0


@dataclass(slots=True)
class Report:
    """What came of it. Counts are in tokens."""

    computed: int = 0
    decoded: int = 0
    """Of these, tokens that were drawn just before: work that no cache can save."""
    reused: int = 0
    preemptions: int = 0
    seconds: float = 0.0
    first_token_seconds: list[float] = field(default_factory=list)
    """From arrival to the first token drawn, in the order in which these were drawn."""
    cold_waits: list[int] = field(default_factory=list)
    """For each cold request: what was computed, until it was admitted, for requests that arrived later."""

    @property
    def prefilled(self) -> int:
        return self.computed - self.decoded


class Simulation:
    """One run over a list of arrivals.

    `prove`, if given, is called with the cache after each step.
    """

    def __init__(
        self,
        machine: Machine,
        arrivals: Sequence[Arrival],
        prove: Callable[[PrefixCache], None] | None = None,
    ) -> None:
        self._machine = machine
        self._arrivals = arrivals
        self._prove = prove
        self._cache = PrefixCache(machine.pages, machine.cache)
        self._scheduler = Scheduler(self._cache, machine.scheduler)
        self._live: dict[SeqId, Running] = {}
        self._came: dict[SeqId, float] = {}
        self._waiting_cold: dict[SeqId, int] = {}
        self._followers = {arrival.after: number for number, arrival in enumerate(arrivals)}
        self._coming = [
            (arrival.at, number) for number, arrival in enumerate(arrivals) if arrival.after is None
        ]
        heapq.heapify(self._coming)
        self._arrived = 0
        self._now = 0.0
        self._report = Report()

    def run(self) -> Report:
        """Raises BenchError if a request cannot be served by such a machine."""
        while self._coming or self._live:
            self._take_arrivals()
            plan = self._scheduler.schedule()
            self._take_notices()
            if plan is not None:
                self._step(plan)
            elif self._coming:
                self._now = max(self._now, self._coming[0][0])
            else:
                raise BenchError(f"{len(self._live)} requests wait and none of them can run")
        self._report.preemptions = self._scheduler.preemptions
        self._report.seconds = self._now
        return self._report

    def _take_arrivals(self) -> None:
        while self._coming and self._coming[0][0] <= self._now:
            at, number = heapq.heappop(self._coming)
            sequence = _sequence(number, self._arrivals[number], self._arrived)
            self._arrived += 1
            self._live[sequence.id], self._came[sequence.id] = sequence, at
            if self._arrivals[number].cold:
                self._waiting_cold[sequence.id] = 0
            self._scheduler.add(sequence)
        self._cache.advance(self._now)

    def _take_notices(self) -> None:
        for notice in self._scheduler.take_notices():
            if isinstance(notice, Refused):
                raise BenchError(f"a request of {len(notice.sequence)} tokens was refused: {notice.reason}")
            assert notice.sequence.reuse is not None
            self._report.reused += notice.sequence.reuse.reused
            if notice.sequence.id in self._waiting_cold:
                self._report.cold_waits.append(self._waiting_cold.pop(notice.sequence.id))

    def _step(self, plan: StepPlan) -> None:
        self._report.computed += plan.tokens
        self._age_cold(plan)
        self._now += self._machine.step_seconds + plan.tokens * self._machine.token_seconds
        for outcome in self._scheduler.apply(self._answer(plan)):
            self._take_outcome(outcome)
        if self._prove is not None:
            self._prove(self._cache)

    def _age_cold(self, plan: StepPlan) -> None:
        for seq in self._waiting_cold:
            arrival = self._live[seq].arrival
            later = (work for work in plan.works if self._live[work.seq].arrival > arrival)
            self._waiting_cold[seq] += sum(len(work.tokens) for work in later)

    def _answer(self, plan: StepPlan) -> StepResult:
        return StepResult(plan.step, tuple(self._draw(work) for work in plan.works))

    def _draw(self, work: SequenceWork) -> SequenceResult:
        if work.sample is None:
            return SequenceResult(work.seq)
        place = len(work.sample.history) - work.sample.prompt_len
        return SequenceResult(work.seq, TokenLogprob(int(self._arrivals[work.seq].answer[place]), 0.0))

    def _take_outcome(self, outcome: Outcome) -> None:
        sequence = outcome.sequence
        if not outcome.drawn:
            return
        if sequence.generated == 1:
            self._report.first_token_seconds.append(self._now - self._came[sequence.id])
        if not sequence.draws:
            # Each token of the answer is fed back once but for the last.
            self._report.decoded += sequence.generated - 1
            self._scheduler.finish(sequence.id)
            del self._live[sequence.id], self._came[sequence.id]
            self._bring_follower(sequence.id)

    def _bring_follower(self, number: int) -> None:
        follower = self._followers.get(number)
        if follower is not None:
            heapq.heappush(self._coming, (max(self._now, self._arrivals[follower].at), follower))


def _sequence(number: int, arrival: Arrival, rank: int) -> Running:
    most = len(arrival.answer)
    request = Request(str(number), tuple(arrival.prompt.tolist()), SamplingParams(max_tokens=most))
    return Running(
        SeqId(number), request, _SPACE, arrival.prompt, arrival=rank, max_len=len(arrival.prompt) + most
    )
