"""Requests through several caches without a clock; `test_whole_rates.py` holds it against simulations."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from sapwood.config import CacheConfig, EvictionName
from sapwood.routing import ROUTER_NAMES, RouterName
from sapwood.sim import Design, Trace, TraceRequest, curves
from sapwood.sim.fleet_replay import fleet_replay
from sapwood.sim.rates import TOKEN
from sapwood.sim.replay import replay
from sapwood.sim.replies import with_replies
from sim.test_judge import TokenCost, chat

COST = TokenCost()


def busy(unit: int, sessions: int = 12, turns: int = 5) -> Trace:
    """Sessions in any order, each from one of three system prompts, with names for no reply."""
    random = np.random.default_rng(unit)
    order = np.repeat(np.arange(sessions), turns)
    random.shuffle(order)
    said = [list(range(1000 + 10 * (session % 3), 1004 + 10 * (session % 3))) for session in range(sessions)]
    rows = []
    for at, session in enumerate(order.tolist()):
        said[session] += [2000 + at]
        names = np.array(said[session], np.int32)
        rows.append(TraceRequest(10.0 * at, unit * len(names), unit + 1, names, unit * len(names), session))
    return Trace.of("busy", unit, rows)


@pytest.mark.parametrize("policy", get_args(EvictionName))
@pytest.mark.parametrize("blocks", [9, 30])
def test_one_replica_is_a_replay(policy: EvictionName, blocks: int) -> None:
    trace, capacity = busy(16), 16 * blocks
    found = fleet_replay(trace, Design(capacity, eviction_policy=policy), CacheConfig(), COST)
    same = replay(with_replies(trace), capacity, CacheConfig(eviction_policy=policy))
    assert found.reused.tolist() == TOKEN.reused_tokens(trace, same.matched).tolist()
    assert found.refused.tolist() == same.refused.tolist()
    (point,) = curves(trace, [capacity], (policy,), workers=1)
    assert found.hit_rate(trace) == point.hit_rate


@pytest.mark.parametrize("routing", ROUTER_NAMES)
def test_blocks_of_any_length_are_routed_alike(routing: RouterName) -> None:
    """A router that sees one block for each name of the trace chooses as with all its tokens."""
    fine, coarse = busy(64), busy(64)
    coarse = replace(
        coarse,
        unit_tokens=512,
        prompt_tokens=8 * coarse.prompt_tokens,
        known_tokens=8 * coarse.known_tokens,
        output_tokens=8 * (coarse.output_tokens - 1) + 1,
    )
    design = Design(64 * 30, replicas=3, routing=routing)
    one = fleet_replay(fine, design, CacheConfig(), COST)
    other = fleet_replay(coarse, replace(design, capacity_tokens=512 * 30), CacheConfig(), COST)
    assert one.replica.tolist() == other.replica.tolist()
    assert (-(-one.reused // 64)).tolist() == (-(-other.reused // 512)).tolist()
    assert len(set(one.replica.tolist())) > 1


def test_sessions_stay_where_they_are_and_turns_do_not() -> None:
    trace = busy(16)
    kept, spread = (
        fleet_replay(trace, Design(16 * 200, 4, routing=routing), CacheConfig(), COST)
        for routing in ("session", "round-robin")
    )
    for session in range(12):
        assert len(set(kept.replica[trace.sessions == session].tolist())) == 1
    assert spread.replica.tolist() == [index % 4 for index in range(len(trace))]
    assert spread.reused.sum() < 0.95 * kept.reused.sum()


@pytest.mark.parametrize(("page", "reused"), [(1, 79), (4, 76), (16, 64), (32, 64), (64, 64), (24, 72)])
def test_only_whole_pages_are_reused_and_never_the_last_token(page: int, reused: int) -> None:
    """The same prompt of five blocks of 16 twice; pages may be parts of blocks, many of them, or neither."""
    names = np.arange(5, dtype=np.int32)
    trace = Trace.of("same", 16, [TraceRequest(float(at), 80, 1, names, 80, 0) for at in range(2)])
    found = fleet_replay(trace, Design(4096, page_size=page), CacheConfig(), COST)
    assert found.reused.tolist() == [0, reused]


def test_what_no_replica_holds_is_refused_and_disturbs_nobody() -> None:
    trace = chat(turns=3, sessions=2)
    found = fleet_replay(trace, Design(16 * 7, replicas=2, routing="session"), CacheConfig(), COST)
    assert found.refused.tolist() == [False] * 4 + [True] * 2
    assert not found.reused[found.refused].any()
    none = fleet_replay(trace, Design(15, replicas=2), CacheConfig(), COST)
    assert none.refused.all()
    assert none.hit_rate(trace) == 0


def test_without_an_index_nothing_is_found() -> None:
    found = fleet_replay(chat(), Design(4096, 2, prefix_index="none"), CacheConfig(), COST)
    assert found.hit_rate(chat()) == 0
    assert not found.refused.any()
