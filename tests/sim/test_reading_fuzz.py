"""Damaged traces of every kind are read or refused, never met with another error."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sapwood.errors import UsageError
from sapwood.sim.reading import read_trace
from sim.files import text_file

CALL = {"t": 0, "model": "m", "in": 64, "out": 1, "hash_ids": [1]}
MESSAGE = {"role": "user", "content": [{"text": "x"}], "tool_calls": [1]}
ANSWER = {"choices": [{"message": {"content": "a"}}], "usage": {"completion_tokens": 3}}
BLOCKS = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 7], "output_hash_ids": [3]}
KINDS: tuple[Sequence[Any], ...] = (
    [{**BLOCKS, "chat_id": 1, "parent_chat_id": 0, "block_size": 512}],
    [{"id": "t", "block_size": 64, "requests": [{"t": 0, "type": "subagent", "requests": [CALL]}, CALL]}],
    [{"timestamp": 1, "input": "hi", "output": "x", "session_id": "s"}],
    [{"timestamp": 1, "messages": [MESSAGE], "tools": [1], "response": ANSWER, "tags": {}, "model": "m"}],
    [{"request_body": '{"prompt": "x"}', "response_body": "{}", "token_ids": [1, 2], "status": "ok"}],
    [
        {
            "event": "request.received",
            "rid": "r",
            "obj": {"text": "x", "input_ids": [1]},
            "out": {"output_ids": [1], "text": "a", "meta_info": {"completion_tokens": 2}},
        }
    ],
    [
        {"capture": "sapwood", "version": 1, "began_at": 1.0},
        {
            "request": "a",
            "order": 0,
            "arrival": 1.0,
            "step": 0,
            "started_step": 0,
            "ended_step": 2,
            "prompt": [1],
            "outputs": [[2]],
            "reused": 0,
        },
        {"steps": 0, "began": [1.0], "ended": [None]},
        {"pin": "a", "at": 1.0, "tenant": "", "prompt": [1], "held": True, "step": 1, "after": 1},
        {"limited": 1, "quotas": {"a": 1}, "public": [[1]], "step": 0, "after": 0},
    ],
    [
        {
            "ts": 5,
            "prompt_tokens": 600,
            "completion_tokens": 80,
            "session_id": "s",
            "status": "ok",
            "metadata": {},
        }
    ],
    [
        {
            "start_time": "2026-11-29T10:00:00Z",
            "attributes": [
                {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "600"}},
                {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "80"}},
            ],
        }
    ],
    [
        {"t": 1, "prompt": "x" * 50, "max_tokens": 9, "usage": {"prompt_tokens": 9, "completion_tokens": 3}},
        {"t": 2, "prompt": "x" * 70, "response": {**ANSWER, "usage": {"prompt_tokens": 12}}},
    ],
)
COUNTED = '{"ts": 5, "prompt_tokens": 600, "completion_tokens": 80}\n'
TEXTS = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50,396,109\n",
    "time,timestamp,input,input_tokens,cache_read_input_tokens,output_tokens,Status,metadata\n"
    '2,1795946401,"Hi, you\nthere",600,50,80,ok,{}\n3,1795946404,x,5,,6,200,"{""session_id"": 1}"\n',
    "INFO 11-29 10:00:00 [logger.py:42] Received request a1: prompt: 'it\\'s', params: SamplingParams(n=1,"
    " stop=['x'], max_tokens=16), prompt_token_ids: [1, 15, 99], lora_request: None.\n"
    "INFO 11-29 10:00:02 [logger.py:60] Generated response a1 (streaming delta): output: ' Yo',"
    " output_token_ids: [7, 8], finish_reason: stop\n"
    "DEBUG 01-01 00:00:01 [logger.py:49] Request a3 details: prompt: 'Hi', prompt_token_ids: None.\n",
    "[2026-11-29 10:00:00] Receive: obj=GenerateReqInput(text='say', input_ids=[1, 15, 99], rid='r1',"
    " sampling_params={'max_new_tokens': 9})\n"
    "[2026-11-29 10:00:00.5 TP0] Receive: obj=GenerateReqInput(text='so \\'', rid='r2', input_ids=None)\n"
    "[2026-11-29 10:00:01] Finish: obj=GenerateReqInput(rid='r1'), out={'text': ' sky', 'output_ids': [4, 5],"
    " 'meta_info': {'id': 'r1', 'prompt_tokens': 3, 'completion_tokens': 2}}\n",
    f"# made on Sunday\n{COUNTED}INFO ready\n{COUNTED}",
    f'INFO "ready", 3\n{{"ts": 4, "input": 600, "output": 5}}\n{COUNTED}',
)
"""Tables, lines for people, and JSON among them."""
SCRAPS = (
    ",",
    '"',
    "'",
    "\n",
    "\r",
    "\0",
    "\\",
    "[",
    "]",
    "{",
    "(",
    ")",
    ": ",
    "-1",
    "nan",
    "9" * 20,
    "[" * 300,
    "é",
    "\u2028",
)
JUNK: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1.5,
    "x",
    "",
    [],
    [None],
    {},
    {"a": 1},
    [1],
    ["x"],
    10**30,
    float("nan"),
    [[1]],
    "{",
    [-3],
)


def damaged(value: Any, dice: random.Random) -> Any:
    if dice.random() < 0.12:
        return dice.choice(JUNK)
    if isinstance(value, dict):
        return {name: damaged(each, dice) for name, each in value.items() if dice.random() > 0.05}
    return [damaged(each, dice) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_damage_is_told_or_does_no_harm(kind: int, tmp_path: Path) -> None:
    path, read = tmp_path / "trace", 0
    for seed in range(150):
        dice = random.Random(seed)
        text = "\n".join(json.dumps(damaged(row, dice)) for row in KINDS[kind])
        path.write_text(text if dice.random() > 0.1 else text[: dice.randrange(len(text) + 1)])
        try:
            read += len(read_trace(path)) > 0
        except UsageError:
            continue
    assert 0 < read < 150


def torn(text: str, dice: random.Random) -> str:
    """Pieces of it are missing, doubled or other."""
    for _ in range(dice.randrange(4)):
        start = dice.randrange(len(text) + 1)
        end = min(len(text), start + dice.choice((0, 1, 1, 5, 40)))
        text = text[:start] + dice.choice(("", "", text[start:end] * 2, *SCRAPS)) + text[end:]
    return text


@pytest.mark.parametrize("kind", range(len(TEXTS)))
def test_lines_for_people_and_tables_that_are_torn_are_told_or_do_no_harm(kind: int, tmp_path: Path) -> None:
    path, read, told = tmp_path / "trace", 0, 0
    for seed in range(300):
        path.write_bytes(torn(TEXTS[kind], random.Random(seed)).encode())
        try:
            read += len(read_trace(path)) > 0
        except UsageError:
            told += 1
    assert read + told == 300
    assert read > 0 < told


def test_the_largest_token_id_beside_a_text_is_told(tmp_path: Path) -> None:
    path = text_file(tmp_path / "a.jsonl", '{"token_ids": [2147483647]}\n{"prompt": "Hi"}\n')
    with pytest.raises(UsageError, match="there is the token id 2147483647"):
        read_trace(path)
