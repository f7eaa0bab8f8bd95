"""Logs of requests in JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sapwood.errors import UsageError
from sapwood.sim.rates import found_unbounded
from sapwood.sim.readers.requests import find_body
from sapwood.sim.readers.tokenize import text_bytes
from sapwood.sim.reading import read_trace
from sapwood.sim.trace import Trace
from sim.files import jsonl, text_file

SYSTEM = {"role": "system", "content": "Be brief."}
HI = {"role": "user", "content": "Hi"}
MORE = {"role": "user", "content": [{"type": "text", "text": "More"}]}


def read(tmp_path: Path, *rows: Mapping[str, Any], **options: Any) -> Trace:
    return read_trace(jsonl(tmp_path / "log.jsonl", rows), **{"tokenize": text_bytes, **options})


def prompts(trace: Trace) -> list[str]:
    return [bytes(row.names[: row.prompt_tokens].tolist()).decode() for row in trace]


def replies(trace: Trace) -> list[str]:
    return [bytes(row.names[row.prompt_tokens :].tolist()).decode() for row in trace]


def test_messages_become_a_text_that_the_next_turn_begins_with(tmp_path: Path) -> None:
    said = {
        "choices": [{"message": {"role": "assistant", "content": "Yo"}}],
        "usage": {"completion_tokens": 9},
    }
    turns = [SYSTEM, HI, {"role": "assistant", "content": "Yo"}, MORE]
    trace = read(
        tmp_path,
        {"timestamp": 1795946400.0, "model": "m", "messages": [SYSTEM, HI], "response": said},
        {"timestamp": 1795946431.5, "model": "m", "messages": turns, "usage": {"completion_tokens": 7}},
    )
    first, second = prompts(trace)
    assert first == "system\nBe brief.\nuser\nHi\nassistant\n"
    assert second == first + "Yo\nuser\nMore\nassistant\n"
    assert (replies(trace), trace.output_tokens.tolist()) == (["Yo", ""], [9, 7])
    assert found_unbounded(trace).tolist() == [0, len(first) + 2]
    assert trace.arrivals.tolist() == [0.0, 31.5]
    assert any("nearly a template" in note for note in trace.notes)
    assert any("a token is a byte" in note for note in trace.assumed)


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [HI]},
        {"request_body": json.dumps({"messages": [HI]}), "response_body": {}},
        {"custom_id": "b1", "url": "/v1/chat/completions", "body": {"messages": [HI]}},
        {"input": {"messages": [HI]}, "output": {"content": "Yo"}, "usage": {"input": 9, "output": 1}},
        {"prompt": "user\nHi\nassistant\n"},
        {"input": "Hi", "model": "m"},
        {"input": [{"role": "user", "content": "Hi"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]},
        {"call_type": "acompletion", "startTime": 1795946400.1, "status": "success", "messages": [HI]},
    ],
)
def test_a_prompt_is_found_in_all_of_these(row: Mapping[str, Any], tmp_path: Path) -> None:
    assert prompts(read(tmp_path, row)) == ["user\nHi\nassistant\n"]


def test_the_order_is_tools_system_messages_whatever_that_of_the_keys(tmp_path: Path) -> None:
    body = {"messages": [HI], "system": [{"type": "text", "text": "Be brief."}], "tools": [{"name": "find"}]}
    assert prompts(read(tmp_path, body)) == [
        'tools\n[{"name": "find"}]\nsystem\nBe brief.\nuser\nHi\nassistant\n'
    ]


def test_calls_and_their_results_are_part_of_the_text(tmp_path: Path) -> None:
    called = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]}
    trace = read(
        tmp_path,
        {"messages": [HI], "response": {"choices": [{"message": called}]}},
        {"messages": [HI, called, {"role": "tool", "tool_call_id": "c1", "content": "none"}]},
    )
    assert prompts(trace)[1] == prompts(trace)[0] + replies(trace)[0] + "\ntool\nnone\nassistant\n"


def test_token_ids_are_taken_as_they_are(tmp_path: Path) -> None:
    rows: list[Mapping[str, Any]] = [
        {"request_id": "r1", "tenant": "acme", "token_ids": [1, 15, 99], "output_token_ids": [4]},
        {"request_id": "r2", "tags": {"tenant": "beta"}, "token_ids": [1, 15, 7]},
        {"request_id": "r3", "tenant": "acme", "prompt": [1, 15, 7]},
    ]
    trace = read(tmp_path, *rows)
    assert [row.names.tolist() for row in trace] == [[1, 15, 99, 4], [1, 15, 7], [1, 15, 7]]
    assert [trace.scope_names[scope] for scope in trace.scopes] == ["acme", "beta", "acme"]
    assert found_unbounded(trace).tolist() == [0, 0, 2]
    assert trace.arrivals.tolist() == [0.0, 1.0, 2.0]
    assert any("3 requests have no time" in note for note in trace.assumed)
    assert any("2 answers are of unknown length" in note for note in trace.assumed)


@pytest.mark.parametrize(
    ("times", "arrivals"),
    [
        ([None, None, 1795946400.0, None, 1795946410.0], [0.0, 0.0, 0.0, 1.0, 10.0]),
        ([1795946400.0, None, None], [0.0, 1.0, 2.0]),
        ([None, 5], [0.0, 0.0]),
    ],
)
def test_who_has_no_time_is_among_those_that_have(
    times: list[float | None], arrivals: list[float], tmp_path: Path
) -> None:
    rows: list[Mapping[str, Any]] = [
        {"prompt": "Hi", **({} if time is None else {"timestamp": time})} for time in times
    ]
    trace = read(tmp_path, *rows)
    assert trace.arrivals.tolist() == arrivals
    assert any(
        f"{times.count(None)} requests have no time" in note for note in (*trace.assumed, *trace.notes)
    )


def test_sessions_are_those_that_are_named(tmp_path: Path) -> None:
    rows: list[Mapping[str, Any]] = [
        {"messages": [HI], "session_id": "s1"},
        {"messages": [HI], "prompt_cache_key": "s2"},
        {"messages": [HI], "metadata": {"requester_metadata": {"session_id": "s1"}}},
    ]
    trace = read(tmp_path, *rows)
    assert trace.sessions.tolist() == [0, 1, 0]
    assert not any("guessed" in note for note in trace.notes)


def test_what_failed_or_has_no_prompt_is_left_out_and_counted(tmp_path: Path) -> None:
    rows: list[Mapping[str, Any]] = [
        {"messages": [HI]},
        {"messages": [HI], "status": "failure"},
        {"messages": [HI], "status": 200},
        {"messages": [HI], "status_code": "500"},
        {"event": "start"},
        {"messages": []},
    ]
    notes = read(tmp_path, *rows).notes
    assert any("2 lines without a prompt" in note for note in notes)
    assert any("2 requests that failed" in note for note in notes)


def test_a_tokenizer_that_is_named_is_asked(tmp_path: Path) -> None:
    trace = read(tmp_path, {"messages": [HI]}, tokenize=lambda text: [len(word) for word in text.split()])
    assert trace.names.tolist() == [4, 2, 9]
    assert not any("byte" in note for note in trace.assumed)


@pytest.mark.parametrize(
    "row",
    [{"token_ids": [2**40]}, {"token_ids": [-1, 3]}, {"token_ids": [1], "output_token_ids": [2**40]}],
)
def test_ids_that_no_model_has_are_told_by_their_line(row: Mapping[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"line 2: there are token ids (that no model has|below 0)"):
        read(tmp_path, {"token_ids": [1]}, row)


@pytest.mark.parametrize("time", [float("inf"), float("-inf"), float("nan"), 1e300])
def test_times_that_are_none_are_told_by_their_line(time: float, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"line 2: (-?inf|nan|1e\+300) is no time"):
        read(tmp_path, {"token_ids": [1]}, {"token_ids": [1, 2, 3], "timestamp": time})


def test_a_log_may_begin_before_0(tmp_path: Path) -> None:
    trace = read(tmp_path, *({"token_ids": [1, 2], "timestamp": at} for at in (-1e5, -2e5, 3)))
    assert trace.arrivals.tolist() == [0.0, 1e5, 200_003.0]


@pytest.mark.parametrize("name", ["request", "response"])
def test_what_is_nested_too_deep_within_is_a_text(name: str, tmp_path: Path) -> None:
    trace = read(tmp_path, {"messages": [HI], name: "[" * 100_000})
    assert len(trace) == 1


SPEND = {
    "request_id": "r1",
    "call_type": "acompletion",
    "startTime": "2026-11-29T09:00:01Z",
    "prompt_tokens": 10,
    "completion_tokens": 4,
    "messages": "{}",
    "response": "{}",
}


def test_usage_says_how_long_texts_are_where_no_tokenizer_is_named(tmp_path: Path) -> None:
    body = {"prompt": "p" * 60}
    rows: list[Mapping[str, Any]] = [
        {
            "request": body,
            "response": {"choices": [{"text": "y"}], "usage": {"prompt_tokens": 12, "completion_tokens": 7}},
        },
        {"request": body},
    ]
    trace = read(tmp_path, *rows, tokenize=None)
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([12, 12], [7, 7])
    assert trace.assumed[0].startswith(
        "token counts are those of the log's usage, 5 bytes a token over 1 of 2 prompts"
    )
    assert trace.assumed[1].startswith("1 answers are of unknown length and taken as 7 tokens each")


@pytest.mark.parametrize(
    "limit", [{"max_tokens": 16}, {"max_completion_tokens": 16}, {"sampling_params": {"max_new_tokens": 16}}]
)
def test_no_answer_is_taken_as_longer_than_was_asked_for(limit: Mapping[str, Any], tmp_path: Path) -> None:
    assert read(tmp_path, {"prompt": "Hi", **limit}).output_tokens.tolist() == [16]
    assert read(tmp_path, {"prompt": "Hi", **limit}, output_tokens=9).output_tokens.tolist() == [9]


def test_a_spend_log_may_have_its_prompts_in_json(tmp_path: Path) -> None:
    stored = {**SPEND, "messages": json.dumps([HI])}
    trace = read(tmp_path, SPEND, stored)
    assert prompts(trace) == ["user\nHi\nassistant\n"]
    assert trace.output_tokens.tolist() == [4]
    assert any("1 lines without a prompt" in note for note in trace.notes)


def test_a_spend_log_without_prompts_is_one_of_arrivals(tmp_path: Path) -> None:
    trace = read(
        tmp_path, SPEND, {**SPEND, "startTime": "2026-11-29T09:00:03Z"}, {**SPEND, "status": "failure"}
    )
    assert trace.arrivals.tolist() == [0.0, 2.0]
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([10, 10], [4, 4])
    assert any("1 requests that failed" in note for note in trace.notes)


@pytest.mark.parametrize("value", [600, 600.5, True, {"tokens": 600}, "", [], None])
def test_what_is_neither_a_text_nor_messages_is_no_prompt(value: Any) -> None:
    for name in ("messages", "prompt", "input"):
        assert find_body({name: value}) is None


def test_the_prompt_is_what_is_there_whatever_else_has_such_a_name(tmp_path: Path) -> None:
    hi = "user\nHi\nassistant\n"
    rows: list[Mapping[str, Any]] = [
        {"messages": 3, "input": "Hi"},
        {"messages": {}, "input": [HI]},
        {"prompt": "", "messages": [HI]},
        {"prompt": 7, "messages": [HI]},
        {"prompt": [HI]},
    ]
    assert prompts(read(tmp_path, *rows)) == [hi] * 5


@pytest.mark.parametrize("name", ["Status", "STATUS", "Status Code"])
def test_what_failed_is_known_however_the_field_is_written(name: str, tmp_path: Path) -> None:
    trace = read(tmp_path, {"messages": [HI]}, {"messages": [HI], name: "500"})
    assert len(trace) == 1
    assert "1 requests that failed are left out" in trace.notes


@pytest.mark.parametrize("pair", [("[", "]"), ('{"a":', "}")])
def test_a_message_that_is_nested_too_deep_is_told_by_its_line(pair: tuple[str, str], tmp_path: Path) -> None:
    def line(deep: int) -> str:
        return '{"messages": [{"content": ' + pair[0] * deep + "1" + pair[1] * deep + "}]}\n"

    assert len(read_trace(text_file(tmp_path / "a.jsonl", line(1) + line(90)))) == 2
    with pytest.raises(UsageError, match=r"^b\.jsonl, line 2 is no JSON: it is nested too deep"):
        read_trace(text_file(tmp_path / "b.jsonl", line(1) + line(900)))
