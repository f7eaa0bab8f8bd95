"""A trace against an engine that computes nothing: the real cache and scheduler on a virtual clock. Read this first.

    arrivals (the trace) ──► router ──► Replica: door ──► schedule ──► steps of a cost model's seconds ──► Run

Replicas run beside each other, each from the end of one step to the end of the next. Events are taken in the order of
their times, arrivals before what ends at the same moment; whoever is idle jumps to the next arrival.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace

from sapwood.routing import Router, Ticket
from sapwood.sim.contents import Contents
from sapwood.sim.cost import CostModel
from sapwood.sim.record import Record
from sapwood.sim.replica import Replica
from sapwood.sim.run import Run
from sapwood.sim.setup import Setup
from sapwood.sim.trace import Trace
from sapwood.sim.visit import Asked, Visit

_TOLD_EVERY = 1000
"""Arrivals from one word of progress to the next."""


def simulate(
    trace: Trace,
    setup: Setup,
    cost: CostModel,
    progress: Callable[[str], None] | None = None,
    *,
    begin: int = 0,
) -> Run:
    """Serve a trace from the request `begin` on, until the last has ended or was refused.

    Those before it warm the caches: each comes and goes at once, through the router, and is no part of the run; with
    none of them caches are cold. A function of its arguments alone. Raises UsageError for a trace that cannot be told
    apart in token ids.
    """
    return Simulation(trace, setup, cost, progress, begin=begin).run()


class Simulation:
    """One run; `coasting` as in `Replica`.

    `asked` is what each request asked for besides; with coasting, as many tokens as it has. `begin` as in `simulate`.
    """

    def __init__(
        self,
        trace: Trace,
        setup: Setup,
        cost: CostModel,
        progress: Callable[[str], None] | None = None,
        *,
        coasting: bool = True,
        asked: Sequence[Asked] | None = None,
        begin: int = 0,
    ) -> None:
        self.record = Record(trace, setup, cost.name)
        self.replicas = [
            Replica(number, setup, cost, self.record, coasting=coasting) for number in range(setup.replicas)
        ]
        self._trace = trace
        self._contents = Contents(trace, self.replicas[0].longest)
        self._progress = progress
        self._asked = asked
        self._router: Router | None = None if setup.router is None else setup.router()
        self._tickets: dict[int, Ticket] = {}
        self._events: list[tuple[float, int]] = []
        """When which replica next ends a step, or wakes; at most one for each."""
        self._awake: set[int] = set()
        self._begin = self._next = begin

    def run(self) -> Run:
        self._warm()
        warmed = self._evicted
        while self._next < len(self._trace) or self._events:
            if self._events and self._events[0][0] < self._next_arrival:
                self._end_and_begin(*heapq.heappop(self._events))
            else:
                self._arrive(self._next)
                self._next += 1
        preemptions = sum(replica.scheduler.preemptions for replica in self.replicas)
        run = self.record.run(preemptions, self._evicted - warmed)
        return run.since(self._begin) if self._begin else run

    def _warm(self) -> None:
        for index in range(self._begin):
            now, visit = float(self._trace.arrivals[index]), self._contents.visit(index)
            number = self._route(visit, now)
            reused = self.replicas[number].warm(visit, now)
            if self._router is None:
                continue
            ticket = self._tickets.pop(index)
            if reused is None:
                self._router.failed(ticket, number, now)
            else:
                self._router.finished(ticket, number, visit.tokens, now, reused)

    @property
    def _evicted(self) -> int:
        """Tokens, so far."""
        return sum(replica.cache.books().evicted_tokens for replica in self.replicas)

    @property
    def _next_arrival(self) -> float:
        return float(self._trace.arrivals[self._next]) if self._next < len(self._trace) else float("inf")

    def _arrive(self, index: int) -> None:
        now = float(self._trace.arrivals[index])
        visit = self._contents.visit(index)
        if self._asked is not None:
            visit = replace(visit, asked=self._asked[index])
        number = self._route(visit, now)
        self.record.routed(index, number)
        self.replicas[number].arrive(visit)
        if number not in self._awake:
            self._awake.add(number)
            heapq.heappush(self._events, (now, number))
        if self._progress is not None and (index + 1) % _TOLD_EVERY == 0:
            self._progress(f"{index + 1:,} of {len(self._trace):,} requests, {now:,.0f} s into the trace")

    def _route(self, visit: Visit, now: float) -> int:
        if self._router is None:
            return visit.index % len(self.replicas)
        session = str(self._trace.sessions[visit.index])
        ticket = Ticket(visit.namespace, visit.prompt, session, visit.output_tokens)
        self._tickets[visit.index] = ticket
        return self._router.choose(ticket, [replica.candidate(now) for replica in self.replicas], now)

    def _end_and_begin(self, now: float, number: int) -> None:
        replica = self.replicas[number]
        if replica.stepping:
            for visit in replica.end(now):
                self._tell_router(visit, number, now)
        ends = replica.begin(now, self._next_arrival)
        for visit in replica.take_refused():
            if self._router is not None:
                self._router.failed(self._tickets.pop(visit.index), number, now)
        if ends is None:
            self._awake.remove(number)
        else:
            heapq.heappush(self._events, (ends, number))

    def _tell_router(self, visit: Visit, replica: int, now: float) -> None:
        if self._router is not None:
            reused = self.record.reused(visit.index)
            self._router.finished(self._tickets.pop(visit.index), replica, visit.computed, now, reused)
