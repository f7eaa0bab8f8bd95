"""Sessions of a coding agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sapwood.errors import UsageError
from sapwood.sim.readers.source import Source
from sapwood.sim.readers.weka import read_weka
from sapwood.sim.trace import Trace
from sim.files import jsonl


def call(t: float, tokens: int, ids: list[Any], model: str = "toy") -> dict[str, Any]:
    return {"t": t, "type": "n", "model": model, "in": tokens, "out": 3, "hash_ids": ids}


def session(*requests: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {"id": "t", "block_size": 64, "hash_id_scope": "local", "requests": list(requests), **others}


SUB = {"t": 50.0, "type": "subagent", "agent_id": "a1", "requests": [call(0.5, 128, [1, 2], "small")]}


def read(tmp_path: Path, *rows: Any, **options: Any) -> Trace:
    return read_weka(Source(jsonl(tmp_path / "weka.jsonl.gz", rows)), **options)


def test_ids_mean_something_in_their_own_session_alone(tmp_path: Path) -> None:
    rows = [session(call(0, 128, [1, 2]), call(9, 192, [1, 2, 3])), session(call(0, 128, [1, 2]))]
    trace = read(tmp_path, *rows, in_a_row=True)
    first, second, other = trace[0].names.tolist(), trace[1].names.tolist(), trace[2].names.tolist()
    assert first == second[:2]
    assert not set(second) & set(other)
    assert trace.sessions.tolist() == [0, 0, 1]
    assert trace.unit_tokens == 64


def test_what_fills_no_block_gets_a_name_of_its_own(tmp_path: Path) -> None:
    trace = read(tmp_path, session(call(0, 130, [1, 2]), call(1, 130, [1, 2]), call(2, 9, [])))
    assert [len(row.names) for row in trace] == [3, 3, 1]
    assert len(set(trace.names.tolist())) == 5
    assert trace.known_tokens.tolist() == trace.prompt_tokens.tolist()


def test_sub_agents_are_sessions_whose_times_count_from_where_they_begin(tmp_path: Path) -> None:
    trace = read(tmp_path, session(call(0, 128, [1, 2]), SUB, call(90, 192, [1, 2, 3])))
    assert trace.arrivals.tolist() == [0.0, 50.5, 90.0]
    assert trace.sessions.tolist() == [0, 1, 0]
    assert [trace.scope_names[scope] for scope in trace.scopes] == ["toy", "small", "toy"]
    assert trace[1].names.tolist() == trace[0].names.tolist()  # of the same trace; the scope keeps them apart


def test_sessions_are_interleaved_by_seed_or_come_in_a_row(tmp_path: Path) -> None:
    rows = [session(call(0, 128, [1, 2]), call(500, 192, [1, 2, 3])) for _ in range(4)]
    one, again, other = (read(tmp_path, *rows, seed=seed) for seed in (1, 1, 2))
    assert one.arrivals.tolist() == again.arrivals.tolist() != other.arrivals.tolist()
    assert one.sessions.tolist() != sorted(one.sessions.tolist())
    in_a_row = read(tmp_path, *rows, in_a_row=True)
    assert in_a_row.arrivals.tolist() == [0, 500, 500, 1000, 1000, 1500, 1500, 2000]
    assert in_a_row.sessions.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (session(call(0, 128, [1])), "line 1, request 1 has 1 blocks of 64 tokens for 128 tokens"),
        (session(call(0, 128, ["a", "b"])), '\'hash_ids\' is ["a", "b"]; a list of whole numbers'),
        (session({"t": 0}), "line 1, request 1 has no 'hash_ids'"),
        (session({**SUB, "requests": [{"t": 0}]}), "line 1, request 1 of a1 has no 'hash_ids'"),
        ({"block_size": 64}, "line 1 has no 'requests'"),
    ],
)
def test_a_request_that_is_none_is_told_by_its_place(row: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, row)
    assert said in str(caught.value)


def test_all_sessions_must_have_blocks_of_one_size(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'block_size' is 32; 64, as in the lines before"):
        read(tmp_path, session(call(0, 64, [1])), session(call(0, 64, [1, 2]), block_size=32))


def test_ids_may_be_as_large_as_they_like(tmp_path: Path) -> None:
    trace = read(tmp_path, session(call(0, 128, [1, 2**40]), call(1, 128, [2**40, 1])))
    assert trace.names.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("ids", [["1", "2"], [1.5, 2], [True, 2], [None, 2]])
def test_ids_are_whole_numbers(tmp_path: Path, ids: list[Any]) -> None:
    with pytest.raises(UsageError, match=r"line 1, request 1: 'hash_ids' is .* a list of whole numbers was"):
        read(tmp_path, session(call(0, 128, ids)))


def test_a_trace_that_begins_before_0_is_moved_there(tmp_path: Path) -> None:
    trace = read(tmp_path, session(call(-5, 128, [1, 2]), call(2, 128, [1, 2])))
    assert trace.arrivals.tolist() == [0.0, 7.0]


@pytest.mark.parametrize("tokens", [2**31, 10**30])
def test_no_request_has_so_many_tokens(tmp_path: Path, tokens: int) -> None:
    with pytest.raises(
        UsageError, match=r"line 1, request 1: 'in' is \d+; .* and below 2147483648 was expected"
    ):
        read(tmp_path, session(call(0, tokens, [1])))
