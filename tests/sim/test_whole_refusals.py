"""What is refused of a whole trace beside times of a part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sapwood.sim import Case, Demand, Design
from sapwood.sim.whole_refusals import WholeRefusals
from sim.test_judge import JUDGE, chat

WHOLE = chat(turns=6, sessions=4)


def test_requests_that_the_part_lacks_count() -> None:
    part = replace(JUDGE, trace=WHOLE.where(np.arange(len(WHOLE)) < 8))
    [simulated], whole = part([Case(Design(128))]), replace(JUDGE, trace=WHOLE)
    assert simulated.refused == 0
    judge = WholeRefusals(part, Demand.of(WHOLE))
    for case in (Case(Design(128)), Case(Design(160, page_size=64)), Case(Design(4096))):
        [outcome], [right], [partly] = judge([case]), whole([case]), part([case])
        assert (outcome.requests, outcome.refused) == (right.requests, right.refused)
        assert replace(outcome, requests=8, refused=partly.refused) == partly
