"""What is refused of a whole trace beside times of a part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sapwood.sim import Case, Design, Goals
from sapwood.sim.whole_refusals import WholeRefusals
from sim.test_judge import JUDGE, chat

WHOLE = chat(turns=6, sessions=4)
"""Prompts of 64, 96, … 224 tokens, four of each, and four of reply."""


def test_requests_that_the_part_lacks_count() -> None:
    part = replace(JUDGE, trace=WHOLE.where(np.arange(len(WHOLE)) < 8))
    [simulated], whole = part([Case(Design(128))]), replace(JUDGE, trace=WHOLE)
    assert simulated.refused == 0
    judge = WholeRefusals(part, WHOLE, None, 4096)
    for case in (Case(Design(128)), Case(Design(160, page_size=64)), Case(Design(4096))):
        [outcome], [right], [partly] = judge([case]), whole([case]), part([case])
        assert (outcome.requests, outcome.refused) == (right.requests, right.refused)
        assert replace(outcome, requests=8, refused=partly.refused, refused_by_all=None) == partly


@pytest.mark.parametrize("traffic", [0.4, 0.8, 1.2, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("context", [None, 200])
def test_under_other_traffic_they_are_those_of_that_traffic(traffic: float, context: int | None) -> None:
    """Sessions as long as each other are no test of which of them are drawn."""
    trace = WHOLE.where(np.arange(len(WHOLE)) % 5 > 0)
    simulating = replace(JUDGE, trace=trace, engine=replace(JUDGE.engine, context=context))
    judge = WholeRefusals(simulating, trace, context, 4096)
    for size in (100, 160, 4096):
        [outcome], [right] = (each([Case(Design(size), traffic)]) for each in (judge, simulating))
        assert (outcome.requests, outcome.refused) == (right.requests, right.refused)


@pytest.mark.parametrize("traffic", [0.8, 1.0, 1.2, 2.0])
def test_what_no_design_could_serve_is_no_shortfall_whatever_the_traffic(traffic: float) -> None:
    """The largest pool of all has 200 tokens, so prompts of 224 are served by none."""
    judge, goals = WholeRefusals(JUDGE, WHOLE, None, 200), Goals(price_per_hour=1.0)
    largest, small = judge([Case(Design(size), traffic) for size in (200, 160)])
    assert largest.refused == largest.refused_by_all
    assert not goals.of_service(largest)
    [short] = goals.of_service(small)
    served = small.requests - small.refused
    assert (short.goal, short.got) == ("requests served", served)
    assert short.wanted == largest.requests - largest.refused > served


def test_who_serves_nobody_meets_nothing() -> None:
    [outcome] = WholeRefusals(JUDGE, WHOLE, None, 16)([Case(Design(16))])
    [short] = Goals(price_per_hour=1.0).of_service(outcome)
    assert (short.wanted, short.got) == (1, 0)
