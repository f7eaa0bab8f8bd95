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
from sapwood.sim.run import Run
from sapwood.sim.setup import Setup
from sapwood.sim.simulate import Simulation
from sapwood.sim.trace import Trace, TraceRequest

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
            raise UsageError(f"the captured run took {len(self.seconds)} steps; its simulation takes more")
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
    """Simulate what was served, on its clock. Raises UsageError for a run that says too little, or does not fit."""
    served = [request for request in captured.requests if request.started_step is not None]
    if not served:
        raise UsageError("the capture holds no request that was served")
    cost = RecordedSteps([step.ended - step.began for step in captured.steps if step.ended is not None])
    trace, pauses = _trace(captured, served), _pauses(captured.steps)
    setup, asked = setup_of(captured), [_asked(request) for request in served]
    run = Simulation(trace, setup, cost, coasting=False, pauses=pauses, asked=asked).run()
    return Again(captured, run, cost.shapes, cost.seconds)


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


def _asked(request: CapturedRequest) -> int:
    said = len(request.outputs[0]) if request.outputs else 0
    most = request.row.fields.get("max_tokens")
    return said if most is None else max(said, int(most))


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
