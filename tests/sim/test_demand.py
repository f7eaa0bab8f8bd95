"""Who is refused for its length: as the simulated engine refuses."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.config import CacheConfig, SchedulerConfig
from sapwood.sim import Setup, Trace, TraceRequest, simulate
from sapwood.sim.demand import Demand, beyond_context, without_names
from sapwood.sim.replay import replay
from sim.small import traces
from sim.test_judge import TokenCost

OFF = SchedulerConfig(speculate="off")
SHAPES = ((60, 0), (61, 0), (59, 1), (60, 1), (61, 1), (40, 20), (40, 21), (40, 22), (3, 3))
"""Prompt and reply, in tokens."""


def lengths(shapes: tuple[tuple[int, int], ...] = SHAPES) -> Trace:
    nothing = np.empty(0, np.int32)
    return Trace.of(
        "lengths", 1, [TraceRequest(float(at), *shape, nothing, 0, at) for at, shape in enumerate(shapes)]
    )


@pytest.mark.parametrize("context", [None, 59, 60, 61, 62])
@pytest.mark.parametrize(("capacity", "page_size"), [(59, 1), (60, 1), (61, 1), (63, 16), (64, 16), (90, 1)])
def test_the_same_are_refused_as_by_the_engine(capacity: int, page_size: int, context: int | None) -> None:
    setup = Setup(capacity, CacheConfig(page_size=page_size), OFF, context=context)
    run = simulate(lengths(), setup, TokenCost())
    demand = Demand.of(lengths(), context)
    assert demand.requests == len(SHAPES)
    assert demand.refused(setup.pages * page_size) == int(run.refused.sum())


def test_the_longest_that_can_be_held() -> None:
    demand = Demand.of(lengths())
    assert [demand.longest(most) for most in (1000, 60, 59, 5, 4)] == [61, 60, 59, 5, 1]
    assert Demand.of(lengths(), context=60).longest(1000) == 60


def test_prompt_and_reply_count_against_the_context() -> None:
    assert beyond_context(lengths(), 60).tolist() == [
        False,
        True,
        False,
        True,
        True,
        False,
        True,
        True,
        False,
    ]
    assert not beyond_context(lengths(), None).any()


@given(traces(), st.integers(1, 30), st.randoms())
def test_without_names_a_request_is_as_if_it_were_not_there(trace: Trace, blocks: int, dice: Random) -> None:
    chosen = np.array([dice.random() < 0.4 for _ in range(len(trace))])
    config, capacity = CacheConfig(eviction_policy="lru"), blocks * trace.unit_tokens
    left, gone = without_names(trace, chosen), trace.where(~chosen)
    found = replay(left, capacity, config).matched
    assert found[~chosen].tolist() == replay(gone, capacity, config).matched.tolist()
    assert not found[chosen].any()
    assert left.prompt_tokens.tolist() == trace.prompt_tokens.tolist()
