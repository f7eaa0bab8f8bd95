"""Request logs of vLLM and SGLang."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sapwood.errors import UsageError
from sapwood.sim.readers.tokenize import text_bytes
from sapwood.sim.reading import read_trace
from sapwood.sim.trace import Trace
from sim.files import text_file

OLD = (
    "INFO 11-29 10:00:00 [logger.py:42] Received request chatcmpl-a1: prompt: {prompt!r}, params: SamplingParams(n=1,"
    " stop=['prompt_token_ids: [9]'], max_tokens=16), prompt_token_ids: {ids}, prompt_embeds shape: None,"
    " lora_request: None."
)


def read(tmp_path: Path, *lines: str, **options: Any) -> Trace:
    banner = "INFO 11-29 09:59:00 [api_server.py:1] Started server process [1]"
    path = text_file(tmp_path / "server.log", "\n".join((banner, *lines)))
    return read_trace(path, **{"tokenize": text_bytes, **options})


def test_vllm_with_token_ids(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        OLD.format(prompt='it\'s "prompt_token_ids: [7]", said\\n he', ids="[1, 15, 99]"),
        "INFO 11-29 10:00:01 [loggers.py:1] Engine 000: Avg prompt throughput: 1.0 tokens/s",
        "INFO 11-29 10:00:02 [logger.py:60] Generated response chatcmpl-a1: output: ' Yo', output_token_ids: [7, 8],"
        " finish_reason: stop",
        "INFO 11-29 10:00:07 [logger.py:42] Received request chatcmpl-a2: prompt: None, params: SamplingParams(n=1),"
        " prompt_token_ids: [1, 15], lora_request: None.",
    )
    assert [row.names.tolist() for row in trace] == [[1, 15, 99, 7, 8], [1, 15]]
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([3, 2], [2, 2])
    assert trace.arrivals.tolist() == [0.0, 7.0]
    assert trace.assumed[0].startswith("1 answers are of unknown length and taken as 2 tokens each, the mean")


def test_vllm_streams_in_pieces_that_the_whole_replaces(tmp_path: Path) -> None:
    def said(how: str, ids: str) -> str:
        return f"INFO 11-29 10:00:02 [logger.py:60] Generated response a1{how}: output: 'x', output_token_ids: {ids}, …"

    asked = OLD.format(prompt="Hi", ids="[1]").replace("chatcmpl-a1", "a1")
    pieces = [said(" (streaming delta)", "[7]"), said(" (streaming delta)", "[8]")]
    assert read(tmp_path, asked, *pieces)[0].names.tolist() == [1, 7, 8]
    whole = said(" (streaming complete)", "[7, 8, 9]")
    assert read(tmp_path, asked, *pieces, whole)[0].names.tolist() == [1, 7, 8, 9]


def test_vllm_with_texts_alone(tmp_path: Path) -> None:
    said = 'it\'s "so"\n'
    trace = read(tmp_path, OLD.format(prompt=said, ids="None"))
    assert bytes(trace.names.tolist()).decode() == said
    assert any("a token is a byte" in note for note in trace.assumed)


def test_vllm_since_prompts_are_logged_apart(tmp_path: Path) -> None:
    lines = [
        "(APIServer pid=77) DEBUG 12-31 23:59:59 [logger.py:49] Request chatcmpl-a2 details: prompt: 'Hi',"
        " prompt_token_ids: [1, 2], prompt_embeds shape: None.",
        "(APIServer pid=77) INFO 12-31 23:59:59 [logger.py:60] Received request chatcmpl-a2: params:"
        " SamplingParams(n=1, temperature=0.7), lora_request: None.",
        "(APIServer pid=77) DEBUG 01-01 00:00:01 [logger.py:49] Request chatcmpl-a3 details: prompt: 'Hi',"
        " prompt_token_ids: [1, 2, 3], prompt_embeds shape: None.",
    ]
    trace = read(tmp_path, *lines)
    assert [row.names.tolist() for row in trace] == [[1, 2], [1, 2, 3]]
    assert trace.arrivals.tolist() == [0.0, 2.0]


def test_vllm_without_prompts_says_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="VLLM_LOGGING_LEVEL=DEBUG"):
        read(tmp_path, "INFO 11-29 10:00:05 [logger.py:49] Received request a2: params: SamplingParams(n=1).")


SGLANG = [
    "[2026-11-29 10:00:00] Receive: obj=GenerateReqInput(text=None, input_ids=[1, 15, 99], rid='r1', stream=True)",
    "[2026-11-29 10:00:00.500 TP0] Receive: obj=GenerateReqInput(text='say (rid=\\'r1\\')', rid='r2', input_ids=None)",
    "[2026-11-29 10:00:01] Finish: obj=GenerateReqInput(rid='r1'), out={'text': ' sky', 'output_ids': [4, 5],"
    " 'meta_info': {'id': 'r1', 'prompt_tokens': 3, 'completion_tokens': 2, 'cached_tokens': 2}}",
    "[2026-11-29 10:00:02] Receive: obj=GenerateReqInput(text=None, input_ids=[1, 2] ... [8, 9], rid='r3')",
]


def test_sglang_in_lines(tmp_path: Path) -> None:
    trace = read(tmp_path, *SGLANG)
    assert trace[0].names.tolist() == [1, 15, 99, 4, 5]
    assert bytes(trace[1].names.tolist()) == b"say (rid='r1')"
    assert (trace.arrivals.tolist(), trace.output_tokens.tolist()) == ([0.0, 0.5], [2, 2])
    assert any("1 requests whose prompt is not there, or cut" in note for note in trace.notes)


def test_sglang_in_json(tmp_path: Path) -> None:
    def line(event: str, rid: str, at: str, **others: Any) -> str:
        return json.dumps({"timestamp": f"2026-11-29T10:00:{at}", "event": event, "rid": rid, **others})

    trace = read(
        tmp_path,
        line("request.received", "r1", "00.5", obj={"text": None, "input_ids": [1, 2, 3]}),
        line("request.received", "r2", "01", obj={"text": "Hi", "input_ids": None}),
        line("request.received", "r3", "02", obj={"input_ids": [1, "...", 3]}),
        line(
            "request.finished",
            "r1",
            "03",
            obj={"input_ids": [1, 2, 3]},
            out={"text": "x", "meta_info": {"completion_tokens": 6}},
        ),
    )
    assert [row.names.tolist() for row in trace] == [[1, 2, 3, 120], [72, 105]]
    assert trace.arrivals.tolist() == [0.0, 0.5]
    assert trace.output_tokens.tolist() == [6, 6]


def test_sglang_without_prompts_says_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--log-requests-level 3"):
        read(tmp_path, "[2026-11-29 10:00:00] Receive: obj=GenerateReqInput(rid='r1', stream=True)")


def test_the_hint_of_a_log_without_prompts_says_nothing_else(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, "INFO 11-29 10:00:05 [logger.py:49] Received request a2: params: SamplingParams(n=1).")
    assert (caught.value.hint or "").startswith("1 requests whose prompt is not there")
    assert (caught.value.hint or "").endswith("without --max-log-len")


def test_limits_and_counts_are_read(tmp_path: Path) -> None:
    trace = read(tmp_path, OLD.format(prompt="Hi there", ids="None"), tokenize=None)
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([2], [16])
    asked = (
        "[2026-11-29 10:00:00] Receive: obj=GenerateReqInput(rid='r1', text='Hi there',"
        " sampling_params={'max_new_tokens': 9})"
    )
    assert read(tmp_path, asked, tokenize=None).output_tokens.tolist() == [9]
    done = (
        "[2026-11-29 10:00:01] Finish: obj=GenerateReqInput(rid='r1'),"
        " out={'meta_info': {'prompt_tokens': 4, 'completion_tokens': 7}}"
    )
    trace = read(tmp_path, asked, done, tokenize=None)
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([4], [7])


@pytest.mark.parametrize("ids", ["[1, 99999999999]", "[,,]", "[1 2]", "[01]", "[1" + "9" * 5000 + "]"])
def test_ids_that_no_model_has_are_told_by_their_line(ids: str, tmp_path: Path) -> None:
    asked = f"INFO 11-29 10:00:00 [logger.py:42] Received request c: prompt: 'a', params: x, prompt_token_ids: {ids}, y"
    with pytest.raises(UsageError, match=r"^server\.log, line 2: "):
        read(tmp_path, asked)
    asked = f"[2026-11-29 10:00:00] Receive: obj=GenerateReqInput(text='a', input_ids={ids}, rid='r1', x)"
    with pytest.raises(UsageError, match=r"^server\.log, line 2: "):
        read(tmp_path, asked)


def test_a_date_that_is_none_is_told_by_its_line(tmp_path: Path) -> None:
    asked = "[2026-99-29 10:00:00] Receive: obj=GenerateReqInput(text='a', input_ids=[1], rid='r1', x)"
    with pytest.raises(UsageError, match=r"^server\.log, line 2: bad month number 99"):
        read(tmp_path, asked)


def test_answers_without_ids_are_as_long_as_was_counted_or_told_as_guesses(tmp_path: Path) -> None:
    said = "x" * 80
    done = (
        f"[2026-11-29 10:00:01] Finish: obj=GenerateReqInput(rid='r1'), out={{'text': '{said}',"
        " 'meta_info': {'completion_tokens': 3}}"
    )
    assert read(tmp_path, SGLANG[0], done, tokenize=None).output_tokens.tolist() == [3]
    asked = OLD.format(prompt="Hi", ids="[1]").replace("chatcmpl-a1", "a1")
    answer = (
        f"INFO 11-29 10:00:02 [logger.py:60] Generated response a1: output: '{said}', output_token_ids: [], …"
    )
    trace = read(tmp_path, asked, answer, tokenize=None)
    assert trace.output_tokens.tolist() == [20]
    assert trace.assumed[0].startswith(
        "1 answers that nobody counted are as long as their texts, 4 bytes a token, a guess"
    )


def test_ids_in_json_that_no_model_has_are_told_by_their_line(tmp_path: Path) -> None:
    event = {"event": "request.received", "rid": "r", "obj": {"input_ids": [1, 2**40]}}
    with pytest.raises(UsageError, match=r"^server\.log, line 2: there are token ids that no model has"):
        read(tmp_path, json.dumps(event))
