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
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sapwood.sim.readers.builder import TraceBuilder
from sapwood.sim.readers.call import NOTHING, Call, Said, said
from sapwood.sim.readers.calls import trace_of
from sapwood.sim.readers.source import Line, Source
from sapwood.sim.readers.timestamps import seconds_of, seconds_without_year
from sapwood.sim.readers.tokenize import A_BYTE, Tokenize, as_names, text_bytes
from sapwood.sim.readers.usage import Usage, usage_of
from sapwood.sim.readers.values import are_ids, ids_of, parsed
from sapwood.sim.trace import Trace

_TEXT = r"('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
_ID_LIST = r"(\[[\d, ]*\])"
_VLLM = re.compile(
    r"(Received request|Request|Generated response) ([^\s:]+)( details| prompt details| \(.*?\))?: (.*)", re.S
)
_VLLM_LIMIT = re.compile(r"\bmax_tokens=([1-9]\d{0,8})[,)]")
_VLLM_TIME = re.compile(r"(\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?) \[")
_SGLANG = re.compile(r"\b(Receive|Finish): obj=\w+\((.*)", re.S)
_SGLANG_LIMIT = re.compile(r"'max_new_tokens': ([1-9]\d{0,8})\b")
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
    usage: Usage = field(default_factory=Usage)
    limit: int | None = None
    cut: bool = False


def read_vllm(source: Source, *, tokenize: Tokenize | None = None, output_tokens: int | None = None) -> Trace:
    """Arguments as of `read_requests`. Raises UsageError if no request has its prompt."""
    calls: dict[str, _Call] = {}
    last = 0.0
    for line in source.lines():
        match = _VLLM.search(line.text)
        if match is None or (match[1] == "Request" and not match[3]):
            continue
        with source.at_fault(line):
            last = _take_vllm(calls, match, line, last)
    hint = "the prompts are logged with --enable-log-requests and VLLM_LOGGING_LEVEL=DEBUG, without --max-log-len"
    return _trace(source, calls, tokenize, output_tokens, hint)


def _take_vllm(calls: dict[str, _Call], match: re.Match[str], line: Line, last: float) -> float:
    """`last`: when the prompt before came; returns when this one did. Raises ValueError."""
    call = calls.setdefault(match[2], _Call())
    if match[1] == "Generated response":
        _take_vllm_answer(call, match[4], goes_on="delta" in (match[3] or ""))
        return last
    stamp = _VLLM_TIME.search(line.text)
    at = None if stamp is None else seconds_without_year(stamp[1])
    if at is not None:
        # The log goes on in the next year.
        last = call.at = at + _YEAR * round(max(0.0, last - at) / _YEAR)
    _take_vllm_prompt(call, match[4])
    return last


def _take_vllm_prompt(call: _Call, said: str) -> None:
    text = re.match(rf"prompt: {_TEXT}", said)
    rest = said if text is None else said[text.end() :]
    # The last: a stop string among the parameters may say anything.
    at = rest.rfind("prompt_token_ids: ")
    ids = None if at < 0 else re.match(_ID_LIST, rest[at + len("prompt_token_ids: ") :])
    if text is not None:
        call.text = _literal(text[1])
    if ids is not None:
        call.ids = _ids(ids[1])
    if (limit := _VLLM_LIMIT.search(rest)) is not None:
        call.limit = int(limit[1])


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
        call.reply_ids += _ids(ids[1])


def read_sglang(
    source: Source, *, tokenize: Tokenize | None = None, output_tokens: int | None = None
) -> Trace:
    """Arguments as of `read_requests`. Raises UsageError if no request has its prompt."""
    calls: dict[str, _Call] = {}
    for line in source.lines():
        with source.at_fault(line):
            _take_sglang(calls, line)
    hint = "the prompts are logged, whole, with --log-requests --log-requests-level 3"
    return _trace(source, calls, tokenize, output_tokens, hint)


def _take_sglang(calls: dict[str, _Call], line: Line) -> None:
    """Raises ValueError."""
    if line.text.startswith("{"):
        _take_sglang_json(calls, line.text)
    elif (match := _SGLANG.search(line.text)) is not None:
        asked, _, answered = match[2].partition("), out=")
        stamp = _SGLANG_TIME.search(line.text)
        _take_sglang_line(calls, asked, answered, None if stamp is None else seconds_of(stamp[1]))


def _take_sglang_line(calls: dict[str, _Call], asked: str, answered: str, at: float | None) -> None:
    text = re.search(rf"\btext={_TEXT}( \.\.\.)?", asked)
    rest = asked if text is None else asked[: text.start()] + asked[text.end() :]  # A text may say anything.
    rid = re.search(rf"\brid={_TEXT}", rest)
    if rid is None:
        return
    call = calls.setdefault(rid[1], _Call(at))
    ids = re.search(rf"\binput_ids={_ID_LIST}( \.\.\.)?", rest)
    if ids is not None:
        call.ids, call.cut = _ids(ids[1]), call.cut or ids[2] is not None
    if text is not None:
        call.text, call.cut = _literal(text[1]), call.cut or (text[2] is not None and call.ids is None)
    reply = re.search(rf"'text': {_TEXT}", answered)
    limit = _SGLANG_LIMIT.search(rest)
    reply_ids = re.search(rf"'output_ids': {_ID_LIST}", answered)
    call.reply_text = (_literal(reply[1]) or "") if reply is not None else call.reply_text
    call.reply_ids = _ids(reply_ids[1]) if reply_ids is not None else call.reply_ids
    call.limit = int(limit[1]) if limit is not None else call.limit
    if answered:
        call.usage = usage_of(
            {each: _counted(answered, each) for each in ("prompt_tokens", "completion_tokens")}
        )


def _counted(answered: str, name: str) -> str | None:
    found = re.search(rf"'{name}': (\d+)", answered)
    return None if found is None else found[1]


def _take_sglang_json(calls: dict[str, _Call], line: str) -> None:
    try:
        fields = parsed(line)
    except ValueError:
        return
    if not isinstance(fields, dict) or not str(fields.get("event", "")).startswith("request."):
        return
    call = calls.setdefault(str(fields.get("rid")), _Call(seconds_of(fields.get("timestamp"))))
    asked, answered = _object(fields.get("obj")), _object(fields.get("out"))
    if isinstance(ids := asked.get("input_ids"), list):
        call.ids = _given(ids)
        call.cut |= len(call.ids) < len(ids)  # "..." stands for what was cut.
    if isinstance(text := asked.get("text"), str):
        call.text = text
    if isinstance(said := answered.get("text"), str):
        call.reply_text = said
    call.reply_ids = _given(answered.get("output_ids")) or call.reply_ids
    if "meta_info" in answered:
        call.usage = usage_of(_object(answered["meta_info"]))
    limit = _object(asked.get("sampling_params")).get("max_new_tokens")
    call.limit = limit if type(limit) is int and limit > 0 else call.limit


def _trace(
    source: Source,
    calls: Mapping[str, _Call],
    tokenize: Tokenize | None,
    output_tokens: int | None,
    hint: str,
) -> Trace:
    builder = TraceBuilder(source.name.removesuffix(".log"), 1)
    whole = [call for call in calls.values() if not call.cut and (call.ids or call.text)]
    if tokenize is text_bytes and any(not call.ids for call in whole):
        builder.assumed.append(A_BYTE)
    if left_out := len(calls) - len(whole):
        builder.notes.append(f"{left_out} requests whose prompt is not there, or cut, are left out; {hint}")
    asked = (
        Call(call.at, _prompt(call, tokenize), _reply(call, tokenize), call.usage, call.limit)
        for call in whole
    )
    return trace_of(builder, list(asked), output_tokens=output_tokens)


def _prompt(call: _Call, tokenize: Tokenize | None) -> Said:
    return as_names(call.ids) if call.ids else said(call.text or "", tokenize)


def _reply(call: _Call, tokenize: Tokenize | None) -> Said:
    if call.reply_ids:
        return as_names(call.reply_ids)
    return said(call.reply_text, tokenize) if call.reply_text else NOTHING


def _ids(text: str) -> list[int]:
    """Raises ValueError."""
    ids: list[int] = ids_of(parsed(text)).tolist()
    return ids


def _literal(text: str) -> str | None:
    """A text in Python's notation."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
    return value if isinstance(value, str) else None


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _given(value: Any) -> list[int]:
    """Token ids, or nothing. Raises ValueError for ids that no model has."""
    ids: list[int] = ids_of(value).tolist() if are_ids(value) else []
    return ids
