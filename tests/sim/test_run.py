from __future__ import annotations

from dataclasses import replace

import numpy as np

from sapwood.sim import Setup
from sim.test_simulate import OFF, ask, run_of


def test_who_left_while_waiting_never_ended_waiting() -> None:
    run = run_of([ask(0.0, 50, 1, name=n) for n in range(3)], Setup(1000, scheduler=OFF))
    whole = run.queueing.tolist()
    left = replace(run, admitted=np.where([False, True, False], np.nan, run.admitted))
    assert left.queueing.tolist() == [whole[0], whole[2]]
    assert all(np.isfinite(figure.value) for figure in left.figures())
