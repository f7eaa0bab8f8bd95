"""The same requests through a real engine on a virtual clock, and as a trace for the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from engine.rig import Log, Rig, greedy
from sapwood.errors import ContextLengthError
from sapwood.sim import Trace, TraceRequest
from sapwood.sim.cost import StepShape
from sapwood.types import Delta, Event, Finished, Scope, Started


@dataclass(frozen=True)
class Ask:
    arrival: float
    prompt: tuple[int, ...]
    output: int
    tenant: str = ""


class ByTokens:
    """A CostModel that an engine's test rig can follow: so long a step of so many tokens."""

    name = "by tokens"

    def step_seconds(self, shape: StepShape) -> float:
        return self.of(int(shape.counts.sum()))

    def prefill_seconds(self, tokens: int, cached: int) -> float:
        return self.of(tokens - cached)

    def of(self, tokens: int) -> float:
        return 0.25 + tokens / 64


@dataclass
class Served:
    """What the engine did. Entries of columns are None for who was refused at the door."""

    logs: list[Log | None] = field(default_factory=list)
    indices: dict[str, int] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    admitted: dict[int, float] = field(default_factory=dict)
    first_token: dict[int, float] = field(default_factory=dict)
    ended: dict[int, float] = field(default_factory=dict)
    steps: int = 0

    def trace(self, asks: Sequence[Ask]) -> Trace:
        """With the replies that it gave."""
        tenants = sorted({ask.tenant for ask in asks})
        rows = [
            self._row(index, ask, log, tenants.index(ask.tenant))
            for index, (ask, log) in enumerate(zip(asks, self.logs, strict=True))
        ]
        return Trace.of("engine", 1, rows, tenants)

    def _row(self, index: int, ask: Ask, log: Log | None, scope: int) -> TraceRequest:
        said = log.samples[0].tokens if log is not None and 0 in log.samples else ()
        names = np.array(ask.prompt + said, np.int32)
        return TraceRequest(ask.arrival, len(ask.prompt), ask.output, names, len(names), index, scope)


class Watched(Rig):
    """Notes what happened when."""

    served: Served

    def take(self, events: list[Event]) -> None:
        super().take(events)
        for event in events:
            index = self.served.indices[event.request_id]
            match event:
                case Started():
                    self.served.order.append(index)
                    self.served.admitted[index] = self.now
                case Delta() if event.token_ids:
                    self.served.first_token.setdefault(index, self.now)
                case Finished():
                    self.served.ended[index] = self.now


def serve(rig: Watched, asks: Sequence[Ask]) -> Served:
    """As the engine's loop does: what arrived is let in between steps; idle until the next arrival."""
    served = rig.served = Served()
    waiting = list(asks)
    while waiting or rig.engine.busy:
        if not rig.engine.busy:
            rig.now = max(rig.now, waiting[0].arrival)
        while waiting and waiting[0].arrival <= rig.now:
            _let_in(rig, waiting.pop(0))
        if rig.engine.busy:
            rig.step()
    served.steps = rig.runner.steps
    return served


def _let_in(rig: Watched, ask: Ask) -> None:
    served, index = rig.served, len(rig.served.logs)
    try:
        log = rig.add(ask.prompt, greedy(ask.output), scope=Scope(tenant=ask.tenant))
    except ContextLengthError:
        served.logs.append(None)
    else:
        served.logs.append(log)
        served.indices[log.request.id] = index
