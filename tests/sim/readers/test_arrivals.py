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
        {"timestamp": 1795946401, "input": 600, "output": 80},
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


@pytest.mark.parametrize("first", ["# made on Sunday", "INFO server, ready", "\rnot a\rline", '"'])
def test_lines_that_are_no_json_are_left_out_and_counted(first: str, tmp_path: Path) -> None:
    row = json.dumps({"ts": 5, "prompt_tokens": 600, "completion_tokens": 80})
    trace = read_trace(text_file(tmp_path / "x.jsonl", f"{first}\n{row}\n7\n{row}\n"))
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([600, 600], [80, 80])
    assert "2 lines without a time and both counts are left out" in trace.notes


def test_a_line_of_json_that_is_damaged_is_told_after_one_that_is_none(tmp_path: Path) -> None:
    row = json.dumps({"ts": 5, "prompt_tokens": 600, "completion_tokens": 80})
    with pytest.raises(UsageError, match=r"^x\.jsonl, line 3 is no JSON"):
        read_trace(text_file(tmp_path / "x.jsonl", f"# log\n{row}\n{row[:-9]}\n"))


@pytest.mark.parametrize(
    "fields",
    [
        {
            "input_tokens": 10,
            "cache_read_input_tokens": 5000,
            "cache_creation_input_tokens": 7,
            "output_tokens": 5,
        },
        {"inputTokens": 10, "cacheReadInputTokens": 5000, "cacheWriteInputTokens": 7, "outputTokens": 5},
        {"promptTokenCount": 5017, "candidatesTokenCount": 2, "thoughtsTokenCount": 3},
    ],
)
def test_a_table_counts_as_lines_of_json_do(fields: Mapping[str, int], tmp_path: Path) -> None:
    """What is counted beside a count is added to it."""
    row = {"timestamp": 3, **fields}
    table = ",".join(row) + "\n" + ",".join(map(str, row.values()))
    for path in (jsonl(tmp_path / "a.jsonl", [row]), text_file(tmp_path / "a.csv", table)):
        trace = read_trace(path)
        assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([5017], [5])


def test_a_table_has_its_times_where_lines_of_json_have_them(tmp_path: Path) -> None:
    """`time` is how long a request took, where there is a timestamp."""
    header = "time,timestamp,prompt_tokens,completion_tokens"
    rows: list[Mapping[str, Any]] = [
        dict(zip(header.split(","), row, strict=True)) for row in ((9, 100, 6, 8), (1, 103, 6, 8))
    ]
    table = header + "".join("\n" + ",".join(map(str, row.values())) for row in rows)
    for path in (jsonl(tmp_path / "a.jsonl", rows), text_file(tmp_path / "a.csv", table)):
        assert read_trace(path).arrivals.tolist() == [0.0, 3.0]


def test_a_table_leaves_out_what_failed_however_its_column_is_headed(tmp_path: Path) -> None:
    table = "Timestamp,Request tokens,Response tokens,Status\n5,600,80,200\n6,600,80,500\n"
    trace = read_trace(text_file(tmp_path / "a.csv", table))
    assert len(trace) == 1
    assert "1 requests that failed are left out" in trace.notes
