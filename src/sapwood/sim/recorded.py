"""A captured run of our own server, to be done again by the simulator: same contents, same clock, same settings.

What the run said of each step's time is replayed, so that whoever was let in before a step is let in before it again,
and all that depends on ages finds the same ages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from sapwood.config import CacheConfig, SchedulerConfig
from sapwood.errors import UsageError
from sapwood.sim.cost import StepShape
from sapwood.sim.readers.capture import CapturedRequest, CapturedRun, StepTimes
from sapwood.sim.repeatable import obstacles
from sapwood.sim.run import Run
from sapwood.sim.setup import Setup
from sapwood.sim.simulate import Simulation
from sapwood.sim.trace import Trace, TraceRequest
from sapwood.sim.visit import Asked
from sapwood.types import Retain

ConfigT = TypeVar("ConfigT", CacheConfig, SchedulerConfig)


class RecordedSteps:
    """A CostModel that answers with the steps of a run, one after the other: it is asked once for each.

    Attributes:
        seconds: of each step.
        shapes: what it was asked for so far.
    """

    name = "the captured run's own clock"

    def __init__(self, seconds: Sequence[float]) -> None:
        self.seconds = seconds
        self.shapes: list[StepShape] = []

    def step_seconds(self, shape: StepShape) -> float:
        if len(self.shapes) == len(self.seconds):
            raise _other(f"it took {len(self.seconds)} steps, its simulation takes more")
        self.shapes.append(shape)
        return self.seconds[len(self.shapes) - 1]

    def prefill_seconds(self, tokens: int, cached: int) -> float:
        """Nobody is to choose by it."""
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
    served = captured.requests
    cost = RecordedSteps([step.ended - step.began for step in captured.steps if step.ended is not None])
    simulation = Simulation(
        _trace(captured, served),
        setup_of(captured),
        cost,
        coasting=False,
        pauses=_pauses(captured.steps),
        asked=[_asked(request) for request in served],
        flushes=[_planned(captured.steps, flush.step) for flush in captured.flushes],
    )
    again = Again(captured, simulation.run(), cost.shapes, cost.seconds)
    _expect_the_same(again)
    return again


def _expect_the_same(again: Again) -> None:
    """Raises UsageError."""
    requests, run = again.captured.requests, again.simulated
    if len(again.shapes) != len(again.run_seconds):
        raise _other(f"it took {len(again.run_seconds)} steps, its simulation takes {len(again.shapes)}")
    reused = run.reused.tolist()
    for request, found in zip(requests, reused, strict=True):
        if request.reused != found:
            raise _other(f"request {request.id} reused {request.reused} tokens, in its simulation {found}")
    began = [requests[index].started_step or 0 for index in run.order.tolist()]
    if len(began) < len(requests) or began != sorted(began):
        raise _other("its requests began in another order than in its simulation")
    tolerance = min(again.run_seconds) / 2
    for request, ended in zip(requests, run.finished.tolist(), strict=True):
        told = request.row.real("ended")
        if not abs(ended - told) <= tolerance:
            raise _other(
                f"request {request.id} ended after {told:.6f} s, in its simulation after {ended:.6f} s"
            )


def _other(what: str) -> UsageError:
    return UsageError(
        f"the captured run is not what comes of simulating it, so that its steps cannot be told apart: {what}",
        hint="take the formula, a layer profile, or results of the bench",
    )


def _planned(steps: Sequence[StepTimes], calls: int) -> int:
    """How many of the first `calls` calls had something to run."""
    return sum(step.ended is not None for step in steps[:calls])


def setup_of(captured: CapturedRun) -> Setup:
    """As the server was set up."""
    told = captured.header.fields
    cache = _config(CacheConfig, told.get("cache"))
    pages, context = captured.header.whole("capacity_pages", 1), captured.header.whole("context", 1)
    scheduler = _config(SchedulerConfig, told.get("scheduler"))
    ends = _end_tokens(captured)
    return Setup(pages * cache.page_size, cache, scheduler, end_tokens=ends, context=context)


def _end_tokens(captured: CapturedRun) -> tuple[int, ...]:
    """Those with which an answer ended, as far as they occurred."""
    ends = {
        int(output[-1])
        for request in captured.requests
        for output, finish in zip(request.outputs, request.row.array("finish"), strict=False)
        if finish == "stop" and len(output)
    }
    return tuple(sorted(ends))


def _asked(request: CapturedRequest) -> Asked:
    told = request.row.fields
    most = told.get("max_tokens")
    said = len(request.outputs[0]) if request.outputs else 0
    return Asked(
        None if most is None else max(said, int(most)),
        int(told.get("priority", 0)),
        bool(told.get("reuse", True)),
        tuple(Retain(**wish) for wish in told.get("retain", ())),
    )


def _config(kind: type[ConfigT], told: Any) -> ConfigT:
    if not isinstance(told, dict):
        raise UsageError(f"the capture does not say with what {kind.__name__} it ran")
    known = {field.name for field in fields(kind)}
    return kind(**{name: value for name, value in told.items() if name in known})


def _trace(captured: CapturedRun, served: Sequence[CapturedRequest]) -> Trace:
    scopes = sorted({request.scope for request in served})
    ended, last_step, arrival, rows = 0, -1, 0.0, []
    for index, request in enumerate(served):
        reply = request.outputs[0] if request.outputs else np.empty(0, np.int32)
        names = np.concatenate((request.prompt, reply)).astype(np.int32)
        if request.step != last_step:
            arrival = _arrival(captured.steps, request.step, idle=ended <= request.step)
            last_step = request.step
        scope = scopes.index(request.scope)
        rows.append(TraceRequest(arrival, len(request.prompt), len(reply), names, len(names), index, scope))
        ended = max(ended, request.ended_step)
    return Trace.of("captured", 1, rows, scopes)


def _arrival(steps: Sequence[StepTimes], step: int, *, idle: bool) -> float:
    """A time at which it is let in just before this step: while the one before runs, if there is one."""
    if idle or step == 0:
        return steps[step].began
    return (steps[step - 1].began + steps[step].began) / 2


def _pauses(steps: Sequence[StepTimes]) -> list[float]:
    """From the end of each step that was planned to the beginning of the next call."""
    return [following.began - step.ended for step, following in pairwise(steps) if step.ended is not None]
