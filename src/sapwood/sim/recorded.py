"""A captured run of our own server, to be done again by the simulator: same contents, same clock, same settings.

The run itself says when each call of the scheduler was made, who was let in before it, who left, and what else was done
to the cache; a `Replica` does the same in the same order. So all that depends on ages finds the same ages, and what
comes of it is what came of it then, or the difference is told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

from sapwood.cache import Namespace
from sapwood.config import CacheConfig, SchedulerConfig
from sapwood.errors import BooksError, UsageError
from sapwood.sim.cost import StepShape
from sapwood.sim.foretold import NotForetoldError
from sapwood.sim.holds import Holds
from sapwood.sim.readers.capture import CapturedRequest, CapturedRun, StepTimes
from sapwood.sim.readers.captured_deeds import (
    CapturedScope,
    Deed,
    Flush,
    Left,
    Limit,
    PinTried,
    Publish,
    Unpin,
    token_ids,
)
from sapwood.sim.record import Record
from sapwood.sim.repeatable import obstacles
from sapwood.sim.replica import Replica
from sapwood.sim.run import Run
from sapwood.sim.setup import Setup
from sapwood.sim.trace import Trace, TraceRequest
from sapwood.sim.visit import Asked, Visit
from sapwood.types import Retain

ConfigT = TypeVar("ConfigT", CacheConfig, SchedulerConfig)


class OwnClock:
    """The CostModel of a run whose times are known: nobody is to choose by it."""

    name = "the captured run's own clock"

    def step_seconds(self, shape: StepShape) -> float:
        del shape
        return 0.0

    def prefill_seconds(self, tokens: int, cached: int) -> float:
        del tokens, cached
        return 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Again:
    """A captured run and its simulation; requests in the order in which they were admitted to the queue.

    Attributes:
        shapes: what each step computed.
        run_seconds: how long the captured steps ran.
    """

    captured: CapturedRun
    simulated: Run
    shapes: Sequence[StepShape]
    run_seconds: Sequence[float]


def simulate_again(captured: CapturedRun) -> Again:
    """Simulate what was served, on its clock, and see that the same came of it.

    Raises UsageError for a run that says too little, that holds what the simulator does not do, or of which something
    else comes: its steps would be given the times of others.
    """
    if wrong := obstacles(captured):
        raise UsageError(
            f"the captured run cannot be done again step by step: {'; '.join(wrong)}",
            hint="capture a run without that, and stop the server before",
        )
    repetition = _Repetition(captured)
    try:
        run = repetition.run()
    except NotForetoldError:
        raise _other("an answer goes on in its simulation where it had ended") from None
    except BooksError as error:
        raise _other(error.message) from None
    times = [step.ended - step.began for step in captured.steps if step.ended is not None]
    return Again(captured, run, repetition.shapes, times)


class _Repetition:
    """Does what a run did, call by call, and compares."""

    def __init__(self, captured: CapturedRun) -> None:
        self.shapes: list[StepShape] = []
        self._captured = captured
        setup, self._cost = setup_of(captured), OwnClock()
        self._record = Record(_trace(captured), setup, self._cost.name)
        self._replica = Replica(0, setup, self._cost, self._record, coasting=False)
        self._holds = Holds(self._replica.cache, self._replica.scheduler)
        self._model = str(captured.header.fields.get("fingerprint", ""))
        self._ends = _end_tokens(captured)
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
            raise _other(f"{self._name(order)} had ended, in its simulation it has not")
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
            self._replica.arrive(self._visit(order))
            self._open.add(order)
            self._admitted = order + 1
        self._replica.let_in()

    def _visit(self, order: int) -> Visit:
        request = self._captured.requests[order]
        told = [np.concatenate((request.prompt, said)).astype(np.int32) for said in request.outputs]
        cut = frozenset(sample for sample, why in enumerate(request.finish) if why == "abort")
        namespace, asked = self._namespace(request.scope), _asked(request, self._ends)
        return Visit(order, namespace, told[0], len(request.prompt), asked, tuple(told[1:]), cut)

    def _namespace(self, scope: CapturedScope) -> Namespace:
        return Namespace(self._model, scope.adapter, scope.tenant, scope.salt)

    def _do(self, deed: Deed) -> None:
        match deed:
            case Left(_, order):
                self._abort(order)
            case Flush():
                self._replica.flush()
            case PinTried(_, name, scope, prompt, at, held):
                if not self._holds.try_pin(name, self._namespace(scope), prompt, at, held=held):
                    raise _other(f"a prompt of {len(prompt)} tokens was pinned that is not cached then")
            case Unpin(_, name):
                if not self._holds.unpin(name):
                    raise _other("a pin was let go that was not there")
            case Publish(_, prefixes):
                self._replica.cache.publish(self._namespace(CapturedScope()), prefixes)
            case Limit(_, quotas):
                self._replica.cache.limit(quotas)

    def _abort(self, order: int) -> None:
        self._admit(order + 1)
        request = self._captured.requests[order]
        said = self._replica.abort(order, request.row.real("ended"))
        if said is None:
            raise _other(f"{self._name(order)} was aborted, in its simulation it had ended before")
        if said != sum(map(len, request.outputs)):
            raise _other(
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
            raise _other(f"step {call} had {had} to run, other than in its simulation")
        if shape is None or times.ended is None:
            return
        self.shapes.append(shape)
        for visit in self._replica.end(times.ended):
            self._expect_ended(visit.index, call)
        self._expect_refused()

    def _expect_begun(self, order: int, place: int, call: int) -> None:
        request, reused = self._captured.requests[order], self._record.reused(order)
        if request.reused != reused:
            raise _other(f"{self._name(order)} reused {request.reused} tokens, in its simulation {reused}")
        if request.started_step != call:
            raise _other(
                f"{self._name(order)} began in step {request.started_step}, in its simulation in {call}"
            )
        told = request.row.fields.get("started_order", place)
        if told != place:
            raise _other(f"{self._name(order)} was number {told} to begin, in its simulation number {place}")

    def _expect_ended(self, order: int, call: int) -> None:
        request = self._captured.requests[order]
        if request.aborted or request.refused or request.ended_step != call + 1:
            raise _other(
                f"{self._name(order)} ended in step {request.ended_step - 1}, in its simulation in {call}"
            )
        self._open.remove(order)

    def _expect_refused(self) -> None:
        for visit in self._replica.take_refused():
            if not self._captured.requests[visit.index].refused:
                raise _other(
                    f"{self._name(visit.index)} was served, in its simulation there is no room for it"
                )
            self._open.remove(visit.index)

    def _name(self, order: int) -> str:
        return f"request {self._captured.requests[order].id}"


def _other(what: str) -> UsageError:
    return UsageError(
        f"the captured run is not what comes of simulating it, so that its steps cannot be told apart: {what}",
        hint="take the formula, a layer profile, or results of the bench",
    )


def setup_of(captured: CapturedRun) -> Setup:
    """As the server was set up."""
    told = captured.header.fields
    cache = _config(CacheConfig, told.get("cache"))
    pages, context = captured.header.whole("capacity_pages", 1), captured.header.whole("context", 1)
    scheduler = _config(SchedulerConfig, told.get("scheduler"))
    return Setup(pages * cache.page_size, cache, scheduler, context=context)


def _end_tokens(captured: CapturedRun) -> tuple[int, ...]:
    """The model's; of old captures, which do not say them, those with which an answer ended."""
    if "eos" in captured.header.fields:
        return tuple(token_ids(captured.header, "eos", captured.header.array("eos")).tolist())
    ends = {
        int(output[-1])
        for request in captured.requests
        for output, finish in zip(request.outputs, request.finish, strict=False)
        if finish == "stop" and len(output)
    }
    return tuple(sorted(ends))


def _asked(request: CapturedRequest, eos: tuple[int, ...]) -> Asked:
    told = request.row.fields
    most = told.get("max_tokens")
    said = max(map(len, request.outputs))
    # As the engine does: a grammar that is complete allows nothing but the end.
    ends = bool(told.get("constrained")) or not told.get("ignore_eos", False)
    return Asked(
        None if most is None else max(said, int(most)),
        int(told.get("priority", 0)),
        bool(told.get("reuse", True)),
        tuple(Retain(**wish) for wish in told.get("retain", ())),
        tuple(dict.fromkeys((*told.get("stop_token_ids", ()), *(eos if ends else ())))),
    )


def _config(kind: type[ConfigT], told: Any) -> ConfigT:
    if not isinstance(told, dict):
        raise UsageError(f"the capture does not say with what {kind.__name__} it ran")
    known = {field.name for field in fields(kind)}
    return kind(**{name: value for name, value in told.items() if name in known})


def _trace(captured: CapturedRun) -> Trace:
    """What was asked, for the books: in the order of admission, whoever's clock was read first."""
    rows, scopes = [], sorted({request.scope.name for request in captured.requests})
    arrival = 0.0
    for index, request in enumerate(captured.requests):
        reply = request.outputs[0]
        names = np.concatenate((request.prompt, reply)).astype(np.int32)
        arrival = max(arrival, request.arrival)
        scope = scopes.index(request.scope.name)
        rows.append(TraceRequest(arrival, len(request.prompt), len(reply), names, len(names), index, scope))
    return Trace.of("captured", 1, rows, scopes)
