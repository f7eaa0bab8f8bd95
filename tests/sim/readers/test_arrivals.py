"""Arrivals and lengths."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sapwood.errors import UsageError
from sapwood.sim.rates import found_unbounded
from sapwood.sim.reading import read_trace
from sim.files import jsonl, text_file

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def test_lengths_are_kept_and_contents_all_differ(tmp_path: Path) -> None:
    rows = "2023-11-16 23:59:59.5000000,374,44\n2023-11-17 00:00:01.2500000,64,0\n2023-11-17 00:00:02.0000000,0,9"
    trace = read_trace(text_file(tmp_path / "conv.csv.gz", HEADER + rows))
    assert trace.arrivals.tolist() == [0.0, 1.75]
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([374, 64], [44, 0])
    assert len(set(trace.names.tolist())) == len(trace.names) == 7
    assert found_unbounded(trace).tolist() == [0, 0]
    assert any("all contents differ" in note for note in trace.assumed)
    assert any("1 requests without a prompt" in note for note in trace.notes)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("2023-11-16 18:15:46,374", "has 2 values; 3 were expected"),
        ("soon,374,44", "has 'soon' as TIMESTAMP; a time was expected"),
        ("2023-11-16 18:15:46,-1,44", "has '-1' as ContextTokens; a count of tokens"),
        ("a", "has 1 values; 3 were"),
        ('2023-11-16 18:15:46,1,"' + "9" * 200_000 + '"', "is no line of a table: field larger"),
    ],
)
def test_a_line_that_is_none_is_told(row: str, said: str, tmp_path: Path) -> None:
    path = text_file(tmp_path / "conv.csv", f"{HEADER}2023-11-16 18:15:46,374,44\n{row}\n")
    with pytest.raises(UsageError) as caught:
        read_trace(path)
    assert str(caught.value).startswith("conv.csv, line 3 ")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "table",
    [
        "created_at,tokens_prompt,tokens_completion,usage\n"
        "2026-11-29T09:00:01Z,600,80,0.1\n2026-11-29T09:00:04Z,5,6,\n",
        "Prompt Tokens,Completion Tokens,Created At\n600.0,80.0,1795946401\n5,6,1795946404\n",
        "Timestamp,Session ID,Request tokens,Response tokens\n5,a,600,80\n8,b,5,6\n",
        "timestamp,input,prompt_tokens,completion_tokens\n"
        '1795946401,"Hi, you\nthere",600,80\n1795946404,,5,6\n,x,7,8\n9,x,,8\n',
    ],
)
def test_a_table_of_a_gateway_is_read_by_the_names_of_its_columns(table: str, tmp_path: Path) -> None:
    trace = read_trace(text_file(tmp_path / "export.csv", table))
    assert trace.arrivals.tolist() == [0.0, 3.0]
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([600, 5], [80, 6])
    left_out = any("2 lines without a time and both counts" in note for note in trace.notes)
    assert left_out == ("there" in table)


@pytest.mark.parametrize(
    "row",
    [
        {"ts": 1795946401, "prompt_tokens": 600, "completion_tokens": 80},
        {"created_at": "2026-11-29T09:00:01Z", "native_tokens_prompt": 600, "native_tokens_completion": 80},
        {
            "start_time": "2026-11-29T09:00:01.5Z",
            "attributes": {"gen_ai.usage.input_tokens": 600, "gen_ai.usage.output_tokens": 80},
        },
        {
            "timestamp": 1795946401,
            "response": {"id": "x", "usage": {"prompt_tokens": 600, "completion_tokens": 80}},
        },
    ],
)
def test_lines_that_tell_usage_alone_are_arrivals(row: Mapping[str, Any], tmp_path: Path) -> None:
    trace = read_trace(jsonl(tmp_path / "usage.jsonl", [row, {"event": "ping"}, {**row, "session_id": "s"}]))
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([600, 600], [80, 80])
    assert found_unbounded(trace).tolist() == [0, 0]
    assert trace.sessions.tolist() == [0, 1]
    assert trace.assumed[0].startswith("arrivals and lengths only: all contents differ")
    assert any("1 lines without a time and both counts" in note for note in trace.notes)


def test_one_prompt_makes_it_a_log_of_requests(tmp_path: Path) -> None:
    counted = {"ts": 1795946401, "prompt_tokens": 600, "completion_tokens": 80}
    trace = read_trace(jsonl(tmp_path / "log.jsonl", [counted, {**counted, "prompt": "p" * 1200}]))
    assert (len(trace), trace.unit_tokens, trace.prompt_tokens.tolist()) == (1, 1, [600])


def test_no_line_of_the_kind_is_told(tmp_path: Path) -> None:
    failed = {"ts": 1, "prompt_tokens": 6, "completion_tokens": 8, "status": "failure"}
    with pytest.raises(UsageError, match="no request that can be replayed"):
        read_trace(text_file(tmp_path / "x.jsonl", json.dumps(failed)))
