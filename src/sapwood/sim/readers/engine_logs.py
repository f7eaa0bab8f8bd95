"""Request logs of vLLM and SGLang: lines for people, with Python's notation of what was asked and answered.

vLLM    INFO 11-29 10:00:00 [logger.py:42] Received request ID: prompt: '…', params: SamplingParams(…),
            prompt_token_ids: [1, 15], …                    (since 0.11.2 at DEBUG alone, as `Request ID details: …`)
        INFO 11-29 10:00:02 [logger.py:60] Generated response ID: output: '…', output_token_ids: [7], …
SGLang  [2026-11-29 10:00:00] Receive: obj=GenerateReqInput(text='…', input_ids=[1, 15], rid='r1', …)
        [2026-11-29 10:00:01] Finish: obj=GenerateReqInput(rid='r1', …), out={'text': '…', 'meta_info': {…}}
        {"timestamp": …, "event": "request.received", "rid": "r1", "obj": {…}}          (--log-requests-format json)

What these logs have cut is no prompt that could be replayed: such requests are left out, and counted.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sapwood.sim.readers.builder import TraceBuilder
from sapwood.sim.readers.sessions import continued
from sapwood.sim.readers.source import Source
from sapwood.sim.readers.timestamps import seconds_of, seconds_without_year
from sapwood.sim.readers.tokenize import Tokenize, as_names, text_bytes
from sapwood.sim.trace import Names, Trace, TraceRequest

_TEXT = r"('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
_ID_LIST = r"(\[[\d, ]*\])"
_VLLM = re.compile(
    r"(Received request|Request|Generated response) ([^\s:]+)( details| prompt details| \(.*?\))?: (.*)", re.S
)
_VLLM_TIME = re.compile(r"(\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?) \[")
_SGLANG = re.compile(r"\b(Receive|Finish): obj=\w+\((.*)", re.S)
_SGLANG_TIME = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?)")
_YEAR = 366 * 86400.0


@dataclass(slots=True)
class _Call:
    """What is known of a request so far."""

    at: float | None = None
    ids: list[int] | None = None
    text: str | None = None
    reply_ids: list[int] = field(default_factory=list)
    reply_text: str = ""
    output_tokens: int | None = None
    cut: bool = False


def read_vllm(source: Source, *, tokenize: Tokenize = text_bytes) -> Trace:
    """Raises UsageError if no request has its prompt."""
    calls: dict[str, _Call] = {}
    last = 0.0
    for line in source.lines():
        match = _VLLM.search(line.text)
        if match is None or (match[1] == "Request" and not match[3]):
            continue
        call = calls.setdefault(match[2], _Call())
        if match[1] == "Generated response":
            _take_vllm_answer(call, match[4], goes_on="delta" in (match[3] or ""))
            continue
        stamp = _VLLM_TIME.search(line.text)
        at = None if stamp is None else seconds_without_year(stamp[1])
        if at is not None:
            last = call.at = at + _YEAR * round(
                max(0.0, last - at) / _YEAR
            )  # The log goes on in the next year.
        _take_vllm_prompt(call, match[4])
    hint = "the prompts are logged with --enable-log-requests and VLLM_LOGGING_LEVEL=DEBUG, without --max-log-len"
    return _trace(source, calls, tokenize, hint)


def _take_vllm_prompt(call: _Call, said: str) -> None:
    text = re.match(rf"prompt: {_TEXT}", said)
    rest = said if text is None else said[text.end() :]
    # The last: a stop string among the parameters may say anything.
    at = rest.rfind("prompt_token_ids: ")
    ids = None if at < 0 else re.match(_ID_LIST, rest[at + len("prompt_token_ids: ") :])
    if text is not None:
        call.text = _literal(text[1])
    if ids is not None:
        call.ids = json.loads(ids[1])


def _take_vllm_answer(call: _Call, said: str, *, goes_on: bool) -> None:
    """A piece that `goes_on` from those before, or the whole."""
    if not goes_on:
        call.reply_text, call.reply_ids = "", []
    text = re.match(rf"output: {_TEXT}", said)
    rest = said if text is None else said[text.end() :]
    ids = re.search(rf"output_token_ids: {_ID_LIST}", rest)
    if text is not None:
        call.reply_text += _literal(text[1]) or ""
    if ids is not None:
        call.reply_ids += json.loads(ids[1])


def read_sglang(source: Source, *, tokenize: Tokenize = text_bytes) -> Trace:
    """Raises UsageError if no request has its prompt."""
    calls: dict[str, _Call] = {}
    for line in source.lines():
        if line.text.startswith("{"):
            _take_sglang_json(calls, line.text)
        elif (match := _SGLANG.search(line.text)) is not None:
            asked, _, answered = match[2].partition("), out=")
            stamp = _SGLANG_TIME.search(line.text)
            _take_sglang_line(calls, asked, answered, None if stamp is None else seconds_of(stamp[1]))
    return _trace(
        source, calls, tokenize, "the prompts are logged, whole, with --log-requests --log-requests-level 3"
    )


def _take_sglang_line(calls: dict[str, _Call], asked: str, answered: str, at: float | None) -> None:
    text = re.search(rf"\btext={_TEXT}( \.\.\.)?", asked)
    rest = asked if text is None else asked[: text.start()] + asked[text.end() :]  # A text may say anything.
    rid = re.search(rf"\brid={_TEXT}", rest)
    if rid is None:
        return
    call = calls.setdefault(rid[1], _Call(at))
    ids = re.search(rf"\binput_ids={_ID_LIST}( \.\.\.)?", rest)
    if ids is not None:
        call.ids, call.cut = json.loads(ids[1]), call.cut or ids[2] is not None
    if text is not None:
        call.text, call.cut = _literal(text[1]), call.cut or (text[2] is not None and call.ids is None)
    reply = re.search(rf"'text': {_TEXT}", answered)
    count = re.search(r"'completion_tokens': (\d+)", answered)
    reply_ids = re.search(rf"'output_ids': {_ID_LIST}", answered)
    call.reply_text = (_literal(reply[1]) or "") if reply is not None else call.reply_text
    call.reply_ids = json.loads(reply_ids[1]) if reply_ids is not None else call.reply_ids
    call.output_tokens = int(count[1]) if count is not None else call.output_tokens


def _take_sglang_json(calls: dict[str, _Call], line: str) -> None:
    try:
        fields = json.loads(line)
    except ValueError:
        return
    if not isinstance(fields, dict) or not str(fields.get("event", "")).startswith("request."):
        return
    call = calls.setdefault(str(fields.get("rid")), _Call(seconds_of(fields.get("timestamp"))))
    asked, answered = _object(fields.get("obj")), _object(fields.get("out"))
    if isinstance(ids := asked.get("input_ids"), list):
        call.ids = _whole(ids)
        call.cut |= len(call.ids) < len(ids)  # "..." stands for what was cut.
    if isinstance(text := asked.get("text"), str):
        call.text = text
    if isinstance(said := answered.get("text"), str):
        call.reply_text = said
    call.reply_ids = _whole(answered.get("output_ids")) or call.reply_ids
    count = _object(answered.get("meta_info")).get("completion_tokens")
    call.output_tokens = count if type(count) is int and 0 <= count < 2**31 else call.output_tokens


def _trace(source: Source, calls: Mapping[str, _Call], tokenize: Tokenize, hint: str) -> Trace:
    builder = TraceBuilder(source.name.removesuffix(".log"), 1)
    rows, left_out, unanswered, last = [], 0, 0, 0.0
    for call in calls.values():
        prompt = _prompt(call, tokenize)
        if prompt is None:
            left_out += 1
            continue
        last = last if call.at is None else call.at
        reply = as_names(call.reply_ids or (tokenize(call.reply_text) if call.reply_text else ()))
        unanswered += not len(reply) and call.output_tokens is None
        output = len(reply) or call.output_tokens or 0
        names = np.concatenate((prompt, reply)) if len(reply) else prompt
        rows.append(TraceRequest(last, len(prompt), output, names, len(names), 0))
    if left_out:
        builder.notes.append(f"{left_out} requests whose prompt is not there, or cut, are left out; {hint}")
    if unanswered:
        builder.notes.append(f"{unanswered} answers are not there and taken as empty")
    if tokenize is text_bytes and any(call.ids is None for call in calls.values()):
        builder.notes.append("where ids are not there a token is a byte: no tokenizer was named")
    builder.notes.append(
        "sessions are guessed: a prompt that goes on from a whole earlier one is of its session"
    )
    for row, session in zip(rows, continued(rows, 1), strict=True):
        prompt, reply = row.names[: row.prompt_tokens], row.names[row.prompt_tokens :]
        builder.add_tokens(row.arrival, prompt, reply, row.output_tokens, session)
    return builder.build(from_zero=True)


def _prompt(call: _Call, tokenize: Tokenize) -> Names | None:
    if call.cut:
        return None
    if call.ids:
        return as_names(call.ids)
    return as_names(tokenize(call.text)) if call.text else None


def _literal(text: str) -> str | None:
    """A text in Python's notation."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
    return value if isinstance(value, str) else None


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _whole(value: Any) -> list[int]:
    """A list of token ids, or nothing."""
    fits = isinstance(value, list) and all(type(each) is int and 0 <= each < 2**31 for each in value)
    return value if fits else []
