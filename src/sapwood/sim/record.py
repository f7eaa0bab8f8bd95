"""What is noted down while a simulation runs, request by request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sapwood.sched import Reuse
from sapwood.sim.run import Run
from sapwood.sim.setup import Setup
from sapwood.sim.trace import Trace


class Record:
    """Columns with an entry for each request of the trace, and sums over the replicas."""

    def __init__(self, trace: Trace, setup: Setup, cost_name: str) -> None:
        count = len(trace)
        self._trace = trace
        self._setup = setup
        self._cost_name = cost_name
        self._admitted, self._first_token, self._finished = np.full((3, count), np.nan)
        self._reused = np.zeros(count, np.int64)
        self._replica = np.zeros(count, np.int64)
        self._missed: dict[str, NDArray[np.int64]] = {}
        self._refusals: dict[int, str] = {}
        self._order: list[int] = []
        self._steps, self._computed = np.zeros((2, setup.replicas), np.int64)
        self._busy = np.zeros(setup.replicas, np.float64)

    def routed(self, index: int, replica: int) -> None:
        self._replica[index] = replica

    def admitted(self, index: int, reuse: Reuse, now: float) -> None:
        self._admitted[index] = now
        self._order.append(index)
        self._reused[index] = reuse.reused
        for reason, tokens in reuse.missed.items():
            if reason not in self._missed:
                self._missed[reason] = np.zeros(len(self._trace), np.int64)
            self._missed[reason][index] = tokens

    @property
    def order(self) -> Sequence[int]:
        """Who was admitted so far."""
        return self._order

    def reused(self, index: int) -> int:
        """Prompt tokens, at first admission."""
        return int(self._reused[index])

    def refused(self, index: int, reason: str) -> None:
        self._refusals[index] = reason

    def drew_first(self, index: int, now: float) -> None:
        if np.isnan(self._first_token[index]):
            self._first_token[index] = now

    def finished(self, index: int, now: float) -> None:
        self._finished[index] = now

    def stepped(self, replica: int, seconds: float, tokens: int) -> None:
        self._steps[replica] += 1
        self._busy[replica] += seconds
        self._computed[replica] += tokens

    def run(self, preemptions: int, evicted_tokens: int) -> Run:
        trace, refused = self._trace, np.zeros(len(self._trace), np.bool_)
        refused[list(self._refusals)] = True
        return Run(
            setup=self._setup,
            cost=self._cost_name,
            arrival=trace.arrivals,
            prompt_tokens=trace.prompt_tokens,
            output_tokens=trace.output_tokens,
            admitted=self._admitted,
            first_token=self._first_token,
            finished=self._finished,
            reused=self._reused,
            missed=self._sorted_missed(),
            replica=self._replica,
            refused=refused,
            refusals=dict(sorted(self._refusals.items())),
            order=np.array(self._order, np.int64),
            steps=self._steps,
            busy_seconds=self._busy,
            computed_tokens=self._computed,
            preemptions=preemptions,
            evicted_tokens=evicted_tokens,
        )

    def _sorted_missed(self) -> Mapping[str, NDArray[np.int64]]:
        return dict(sorted(self._missed.items(), key=lambda item: (-int(item[1].sum()), item[0])))
