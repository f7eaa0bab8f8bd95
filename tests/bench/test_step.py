"""The anatomy of a step: what is counted where, on a clock that only this test moves."""

from __future__ import annotations

from typing import Any

import numpy as np
from bench.step.anatomy import Clock, StepTimes, WatchedOps
from bench.step.suite import row

from sapwood.model.ops import Norm
from sapwood.model.ops_reference import ReferenceOps


def times(python: float, kernels: float) -> StepTimes:
    return StepTimes(
        schedule=python / 4, run=kernels + python / 4, apply=python / 4, stats=python / 4, kernels=kernels
    )


def test_what_is_outside_the_kernels_is_python() -> None:
    step = times(python=8.0, kernels=92.0)
    assert (step.whole, step.python) == (100.0, 8.0)


def test_a_row_tells_the_median_share_of_each_round() -> None:
    told = row(8, 50, [[times(8, 92), times(5, 95), times(90, 10)], [times(12, 88)]]).json()
    assert told["scenario"] == "decode step, 8 running, context 50"
    assert [pair["ours"] for pair in told["pairs"]] == [8.0, 12.0]
    assert told["ours"] == 10.0
    assert told["goal"]["met"]
    assert told["detail"]["kernels, µs"] == 90.0
    assert told["detail"]["step, µs"] == 100.0


def test_the_clock_runs_in_calls_and_in_programs_and_nowhere_else() -> None:
    clock = Clock()
    ops: Any = WatchedOps(ReferenceOps(), clock)
    x, norm = np.ones((2, 8), np.float32), Norm(np.ones(8, np.float32), 1e-6)
    out = np.empty_like(x)

    def walk(_plan: Any) -> None:
        ops.rms_norm(x, norm, out)

    assert (ops.name, clock.seconds) == ("reference", 0.0)
    ops.rms_norm(x, norm, out)
    alone = clock.seconds
    assert alone > 0
    program = ops.program(walk, None)
    assert clock.seconds == alone
    program.run(None)
    assert clock.seconds > alone
