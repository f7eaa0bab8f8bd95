from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from sapwood.errors import UsageError
from sapwood.sim.chat import ChatWorkload, draw_chat, synthetic_chat
from sapwood.sim.trace import Trace

SMALL = ChatWorkload(conversations=40, adapters=3)


def columns(trace: Trace) -> list[list[float]]:
    return [
        column.tolist()
        for column in (
            trace.arrivals,
            trace.prompt_tokens,
            trace.output_tokens,
            trace.known_tokens,
            trace.sessions,
            trace.scopes,
            trace.names,
            trace.offsets,
        )
    ]


def turns_of(trace: Trace) -> dict[int, list[int]]:
    """Conversation → its requests, in order."""
    found: dict[int, list[int]] = {}
    for index, session in enumerate(trace.sessions.tolist()):
        found.setdefault(session, []).append(index)
    return found


def test_a_seed_is_a_trace() -> None:
    assert columns(synthetic_chat(SMALL, 5)) == columns(synthetic_chat(SMALL, 5))
    assert columns(synthetic_chat(SMALL, 5)) != columns(synthetic_chat(SMALL, 6))


def test_its_rows_are_requests_in_order_of_arrival() -> None:
    trace = synthetic_chat(SMALL, 1)
    assert sorted(trace.arrivals.tolist()) == trace.arrivals.tolist()
    for row in trace:
        assert len(row.names) == row.known_tokens == row.prompt_tokens + row.output_tokens
    assert trace.scope_names == ("adapter 0", "adapter 1", "adapter 2")


@pytest.mark.parametrize("unit", [1, 16])
def test_each_turn_begins_with_all_that_was_said_before(unit: int) -> None:
    trace = synthetic_chat(replace(SMALL, unit_tokens=unit), 2)
    for turns in turns_of(trace).values():
        assert len({int(trace.scopes[turn]) for turn in turns}) == 1
        for before, after in pairwise(turns):
            first, second = trace[before], trace[after]
            assert second.prompt_tokens > first.known_tokens
            full = first.known_tokens // unit
            assert first.names[:full].tolist() == second.names[:full].tolist()


def test_conversations_share_a_system_prompt_and_nothing_else() -> None:
    workload = replace(SMALL, system_prompts=2, unit_tokens=16)
    draw, trace = draw_chat(workload, 3), synthetic_chat(workload, 3)
    rows = list(trace)
    for a in range(len(rows)):
        for b in range(a):
            if rows[a].session == rows[b].session:
                continue
            shared = set(rows[a].names.tolist()) & set(rows[b].names.tolist())
            same = draw.systems[a] == draw.systems[b]
            assert len(shared) == (draw.system_tokens[a] // 16 if same else 0)


def test_a_partial_block_is_nobody_elses() -> None:
    trace = synthetic_chat(replace(SMALL, unit_tokens=16), 4)
    last = [int(row.names[-1]) for row in trace if row.known_tokens % 16]
    rest = np.concatenate([row.names[: row.known_tokens // 16] for row in trace])
    assert len(set(last)) == len(last) > 0
    assert not set(last) & set(rest.tolist())


def test_more_adapters_and_larger_blocks_change_nothing_else() -> None:
    one, many = synthetic_chat(replace(SMALL, adapters=1), 7), synthetic_chat(replace(SMALL, adapters=64), 7)
    assert columns(one)[:5] == columns(many)[:5]
    assert columns(one)[6:] == columns(many)[6:]
    assert columns(one)[:5] == columns(synthetic_chat(replace(SMALL, adapters=1, unit_tokens=16), 7))[:5]
    assert one.scope_names == ("",)


def test_what_is_drawn_is_distributed_as_said() -> None:
    draw = draw_chat(ChatWorkload(conversations=20_000, system_prompts=2000, adapters=4), 0)
    firsts = np.flatnonzero(
        np.isin(np.arange(len(draw)), np.unique(draw.conversations, return_index=True)[1])
    )
    turns = np.bincount(draw.conversations)
    users = draw.prompt_tokens[firsts] - draw.system_tokens[firsts]
    assert turns.max() == 12
    assert turns.mean() == pytest.approx((1 - 0.75**12) / 0.25, rel=0.02)
    assert np.median(users) == pytest.approx(80, abs=2)
    assert np.log(users).std() == pytest.approx(0.7, abs=0.02)
    assert np.median(draw.reply_tokens) == pytest.approx(250, abs=4)
    assert np.log(draw.reply_tokens).std() == pytest.approx(0.8, abs=0.02)
    assert (draw.system_tokens.min(), draw.system_tokens.max()) == (300, 2000)
    assert draw.system_tokens[firsts].mean() == pytest.approx(1150, rel=0.03)
    assert draw.arrivals[firsts].mean() == pytest.approx(1800, rel=0.03)
    assert np.bincount(draw.adapters[firsts]) / 20_000 == pytest.approx([0.25] * 4, abs=0.02)


def test_turns_follow_each_other_after_a_minute_on_average() -> None:
    draw = draw_chat(ChatWorkload(conversations=20_000), 0)
    order = np.lexsort((draw.arrivals, draw.conversations))
    gaps = np.diff(draw.arrivals[order])[np.diff(draw.conversations[order]) == 0]
    assert gaps.mean() == pytest.approx(60, rel=0.02)
    assert gaps.std() == pytest.approx(60, rel=0.03)


def test_an_hour_of_many_requests_is_a_trace_of_blocks() -> None:
    trace = synthetic_chat(ChatWorkload(conversations=10_000, unit_tokens=512), 1)
    assert len(trace) > 30_000
    assert trace.offsets[-1] == len(trace.names) == (-(-trace.known_tokens // 512)).sum()
    assert trace.names.min() >= 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"conversations": 0},
        {"mean_turns": 0.5},
        {"longest_prompt": 299},
        {"reply_sigma": -1.0},
        {"unit_tokens": 0},
    ],
)
def test_a_chat_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        ChatWorkload(**wrong)


def test_more_blocks_than_have_names_are_refused() -> None:
    workload = ChatWorkload(conversations=300, user_tokens=1e8, most_turns=1, user_sigma=0.0)
    with pytest.raises(UsageError, match="blocks are more than have names"):
        synthetic_chat(workload)
