"""What becomes of a design, by simulation."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sapwood.sim.design import Case, Outcome
from sapwood.sim.engine_spec import EngineSpec
from sapwood.sim.interval import interval_of
from sapwood.sim.progress import Progress
from sapwood.sim.run import Run
from sapwood.sim.simulate import simulate
from sapwood.sim.trace import Trace
from sapwood.sim.traffic import with_traffic
from sapwood.sim.window import Window, before, new_tokens
from sapwood.sim.workers import in_parallel

WARM = 2
"""Caches are warmed by the requests before a window that bring so many times the tokens that all replicas hold."""


@dataclass(frozen=True, slots=True, eq=False)
class _World:
    """The trace under some traffic, the part of it that is simulated, and what each request brings that is new."""

    trace: Trace
    window: Window
    new: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """A part of a trace whose first `begin` requests warm the caches."""

    trace: Trace
    begin: int
    case: Case


@dataclass(frozen=True, slots=True, eq=False)
class SimulatingJudge:
    """Simulates one trace on one kind of replica; several cases at once in processes beside each other.

    Attributes:
        window: what is simulated, from caches that those before it have warmed; None is all, from empty caches.
    """

    trace: Trace
    engine: EngineSpec
    workers: int | None = None
    progress: Progress | None = None
    window: Window | None = None
    _worlds: dict[float, _World] = field(default_factory=dict, init=False, repr=False)

    def __call__(self, cases: list[Case]) -> list[Outcome]:
        tell, run = self.progress, partial(_simulated, self.engine)
        if len(cases) == 1:
            told = None if tell is None else lambda done: tell(f"simulating: {done}")
            return [run(self._job(cases[0]), told)]
        jobs = [self._job(case) for case in cases]
        return in_parallel(run, jobs, workers=self.workers, progress=tell, what="simulating")

    def _job(self, case: Case) -> _Job:
        world = self._world(case.traffic)
        trace, window = world.trace, world.window
        first = window.first
        if case.design.prefix_index != "none":
            first = before(world.new, window.first, WARM * case.design.total_tokens)
        if (first, window.count) == (0, len(trace)):
            return _Job(trace, 0, case)
        places = np.arange(len(trace))
        part = trace.where((places >= first) & (places < window.first + window.count))
        return _Job(part, window.first - first, case)

    def _world(self, traffic: float) -> _World:
        if traffic not in self._worlds:
            trace = with_traffic(self.trace, traffic)
            self._worlds[traffic] = _World(trace, self._window(trace, traffic), new_tokens(trace))
        return self._worlds[traffic]

    def _window(self, trace: Trace, traffic: float) -> Window:
        """The same seconds under other traffic, so as many times the requests."""
        window = self.window
        if window is None or window.count == len(self.trace):
            return Window(0, len(trace))
        if traffic == 1:
            return window
        first = int(np.searchsorted(trace.arrivals, self.trace.arrivals[window.first]))
        first = min(first, len(trace) - 1)
        return Window(first, min(max(1, round(window.count * traffic)), len(trace) - first))


def _simulated(engine: EngineSpec, job: _Job, progress: Progress | None = None) -> Outcome:
    cost = engine.at(job.case.speed).cost
    return outcome_of(simulate(job.trace, engine.setup(job.case), cost, progress, begin=job.begin))


def outcome_of(run: Run) -> Outcome:
    """Of a request that draws no token, the first is there when its prompt is read."""
    first = np.where(np.isnan(run.first_token), run.finished, run.first_token)
    ttft = np.where(run.refused, np.inf, first - run.arrival)
    p50, p95, p99 = (_percentile(ttft, share) for share in (50, 95, 99))
    computed = run.computed_tokens
    return Outcome(
        requests=len(ttft),
        refused=int(run.refused.sum()),
        hit_rate=run.hit_rate,
        ttft_p50=p50,
        ttft_p95=p95,
        ttft_p99=p99,
        ttft_mean=float(ttft.mean()) if len(ttft) else np.nan,
        tpot_p50=_percentile(run.tpot, 50),
        tpot_p95=_percentile(run.tpot, 95),
        queue_p95=_percentile(run.queueing, 95),
        busiest=float(computed.max() / computed.mean()) if computed.any() else 1.0,
        seconds=run.seconds,
        timed=len(ttft),
        ttft_p95_between=interval_of(ttft, 0.95) if len(ttft) else None,
        ttfts=tuple(_percentile(ttft, share) for share in range(101)) if len(ttft) else (),
    )


def _percentile(values: NDArray[np.float64], share: float) -> float:
    """Between two values where that means something; nan of none."""
    if not len(values):
        return np.nan
    method = "linear" if np.isfinite(values).all() else "higher"
    return float(np.percentile(values, share, method=method))  # type: ignore[call-overload]
