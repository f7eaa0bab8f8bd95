"""Does a captured run again: between two calls of the scheduler what was done there, and each call at its time."""

from __future__ import annotations

from collections import deque

from sapwood.errors import UsageError
from sapwood.sim.captured_visits import CapturedVisits
from sapwood.sim.cost import StepShape
from sapwood.sim.holds import Holds
from sapwood.sim.readers.capture import CapturedRun, StepTimes
from sapwood.sim.readers.captured_deeds import (
    CapturedScope,
    Deed,
    Flush,
    Left,
    Limit,
    PinTried,
    Publish,
    Unpin,
)
from sapwood.sim.record import Record
from sapwood.sim.replica import Replica
from sapwood.sim.run import Run
from sapwood.sim.setup import Setup


class OwnClock:
    """The CostModel of a run whose times are known: nobody is to choose by it."""

    name = "the captured run's own clock"

    def step_seconds(self, shape: StepShape) -> float:
        del shape
        return 0.0

    def prefill_seconds(self, tokens: int, cached: int) -> float:
        del tokens, cached
        return 0.0


class Repetition:
    """Does what a run did, call by call, and compares.

    Attributes:
        shapes: what each step computed.
    """

    def __init__(self, captured: CapturedRun, setup: Setup) -> None:
        self.shapes: list[StepShape] = []
        self._captured = captured
        self._visits, cost = CapturedVisits(captured), OwnClock()
        self._record = Record(self._visits.trace(), setup, cost.name)
        self._replica = Replica(0, setup, cost, self._record, coasting=False)
        self._holds = Holds(self._replica.cache, self._replica.scheduler)
        self._deeds = deque(captured.deeds)
        self._admitted = 0
        self._open: set[int] = set()
        """Requests that have begun to wait and not ended."""

    def run(self) -> Run:
        """Raises UsageError, BooksError or NotForetoldError where something else comes of it."""
        for call, times in enumerate(self._captured.steps):
            self._between(call)
            self._step(call, times)
        self._between(len(self._captured.steps))
        for order in sorted(self._open):
            raise differs(f"{self._name(order)} had ended, in its simulation it has not")
        cache = self._replica.cache
        return self._record.run(self._replica.scheduler.preemptions, cache.books().evicted_tokens)

    # ---- between two calls -------------------------------------------------------------------------------

    def _between(self, call: int) -> None:
        """What was done before this call, after the one before."""
        requests = self._captured.requests
        while self._deeds and self._deeds[0].place.step <= call:
            deed = self._deeds.popleft()
            self._admit(deed.place.after or 0)
            self._do(deed)
        upto = self._admitted
        while upto < len(requests) and requests[upto].step <= call:
            upto += 1
        self._admit(upto)

    def _admit(self, upto: int) -> None:
        for order in range(self._admitted, min(upto, len(self._captured.requests))):
            self._replica.arrive(self._visits.visit(order))
            self._open.add(order)
            self._admitted = order + 1
        self._replica.let_in()

    def _do(self, deed: Deed) -> None:
        match deed:
            case Left(_, order):
                self._abort(order)
            case Flush():
                self._replica.flush()
            case PinTried(_, name, scope, prompt, at, held):
                if not self._holds.try_pin(name, self._visits.namespace(scope), prompt, at, held=held):
                    raise differs(f"a prompt of {len(prompt)} tokens was pinned that is not cached then")
            case Unpin(_, name):
                if not self._holds.unpin(name):
                    raise differs("a pin was let go that was not there")
            case Publish(_, prefixes):
                self._replica.cache.publish(self._visits.namespace(CapturedScope()), prefixes)
            case Limit(_, quotas):
                self._replica.cache.limit(quotas)

    def _abort(self, order: int) -> None:
        self._admit(order + 1)
        request = self._captured.requests[order]
        said = self._replica.abort(order, request.row.real("ended"))
        if said is None:
            raise differs(f"{self._name(order)} was aborted, in its simulation it had ended before")
        if said != sum(map(len, request.outputs)):
            raise differs(
                f"{self._name(order)} was aborted after {sum(map(len, request.outputs))} tokens of its answers, "
                f"in its simulation after {said}"
            )
        self._open.remove(order)

    # ---- a call ------------------------------------------------------------------------------------------

    def _step(self, call: int, times: StepTimes) -> None:
        begun = len(self._record.order)
        shape = self._replica.schedule(times.began)
        for place, order in enumerate(self._record.order[begun:], begun):
            self._expect_begun(order, place, call)
        self._expect_refused()
        if (shape is None) != (times.ended is None):
            had = "nothing" if times.ended is None else "something"
            raise differs(f"step {call} had {had} to run, other than in its simulation")
        if shape is None or times.ended is None:
            return
        self.shapes.append(shape)
        for visit in self._replica.end(times.ended):
            self._expect_ended(visit.index, call)
        self._expect_refused()

    def _expect_begun(self, order: int, place: int, call: int) -> None:
        request, reused = self._captured.requests[order], self._record.reused(order)
        if request.reused != reused:
            raise differs(f"{self._name(order)} reused {request.reused} tokens, in its simulation {reused}")
        if request.started_step != call:
            raise differs(
                f"{self._name(order)} began in step {request.started_step}, in its simulation in {call}"
            )
        told = request.row.fields.get("started_order", place)
        if told != place:
            raise differs(f"{self._name(order)} was number {told} to begin, in its simulation number {place}")

    def _expect_ended(self, order: int, call: int) -> None:
        request = self._captured.requests[order]
        if request.aborted or request.refused or request.ended_step != call + 1:
            raise differs(
                f"{self._name(order)} ended in step {request.ended_step - 1}, in its simulation in {call}"
            )
        self._open.remove(order)

    def _expect_refused(self) -> None:
        for visit in self._replica.take_refused():
            if not self._captured.requests[visit.index].refused:
                raise differs(
                    f"{self._name(visit.index)} was served, in its simulation there is no room for it"
                )
            self._open.remove(visit.index)

    def _name(self, order: int) -> str:
        return f"request {self._captured.requests[order].id}"


def differs(what: str) -> UsageError:
    return UsageError(
        f"the captured run is not what comes of simulating it, so that its steps cannot be told apart: {what}",
        hint="take the formula, a layer profile, or results of the bench",
    )
