"""Logs of requests, one JSON object a line, as clients of OpenAI's and Anthropic's routes and gateways keep them.

A line is a body (`messages`, `prompt`, `input`), or token ids (`token_ids`), or either in a wrapper, perhaps as a text
in JSON. Time, session, tenant, usage and answer are taken where one of the usual names has them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sapwood.errors import UsageError
from sapwood.sim.readers.builder import TraceBuilder
from sapwood.sim.readers.sessions import continued
from sapwood.sim.readers.source import Row, Source
from sapwood.sim.readers.texts import FLATTENED, answer_text, text_of
from sapwood.sim.readers.timestamps import seconds_of
from sapwood.sim.readers.tokenize import Tokenize, as_names, text_bytes
from sapwood.sim.trace import Names, Trace, TraceRequest

_IDS = ("token_ids", "prompt_token_ids", "input_ids")
_PROMPTS = ("messages", "prompt", "input")
_BODIES = ("request_body", "request", "body", "kwargs", "input")
_ANSWERS = ("response_body", "response", "output", "completion_response", "out")
_TIMES = ("timestamp", "ts", "created_at", "request_time", "startTime", "start_time", "time", "created", "t")
_SESSIONS = ("session_id", "sessionId", "conversation_id", "chat_id", "thread_id", "prompt_cache_key")
_OUTPUT_COUNTS = ("completion_tokens", "output_tokens", "output")


@dataclass(slots=True)
class _Notes:
    """What was met on the way."""

    flattened: bool = False
    bytes_taken: bool = False
    skipped: int = 0
    failed: int = 0
    no_time: int = 0
    no_answer: int = 0
    guessed_sessions: bool = False

    def told(self) -> Iterator[str]:
        if self.flattened:
            yield FLATTENED
        if self.bytes_taken:
            yield "a token is a byte: no tokenizer was named"
        if self.guessed_sessions:
            yield "sessions are guessed: a prompt that goes on from a whole earlier one is of its session"
        for count, what in (
            (self.skipped, "lines without a prompt are left out"),
            (self.failed, "requests that failed are left out"),
            (
                self.no_time,
                "requests have no time; they come a second after the one before, the first with the next that has one",
            ),
            (self.no_answer, "answers are of unknown length and taken as empty"),
        ):
            if count:
                yield f"{count} {what}"


@dataclass(slots=True)
class _Log:
    builder: TraceBuilder
    tokenize: Tokenize
    notes: _Notes = field(default_factory=_Notes)
    rows: list[TraceRequest] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    times: list[float | None] = field(default_factory=list)

    def take(self, row: Row) -> None:
        body, notes = find_body(row.fields), self.notes
        if body is None:
            notes.skipped += 1
        elif _failed(row.fields):
            notes.failed += 1
        else:
            self._take(row, body)

    def _take(self, row: Row, body: Mapping[str, Any]) -> None:
        prompt = self._prompt(row, body)
        if not len(prompt):
            self.notes.skipped += 1
            return
        reply, output = self._reply(row.fields)
        names = np.concatenate((prompt, reply)) if len(reply) else prompt
        scope = self.builder.scope(_scope(row.fields, body))
        self.times.append(_time(row.fields))
        self.rows.append(TraceRequest(0.0, len(prompt), output, names, len(names), 0, scope))
        self.keys.append(_session(row.fields, body))

    def _prompt(self, row: Row, body: Mapping[str, Any]) -> Names:
        given = next((body[name] for name in (*_IDS, "prompt", "input") if _are_ids(body.get(name))), None)
        if given is not None:
            return self._ids(row, given)
        text = text_of(body)
        self.notes.flattened |= not isinstance(body.get("prompt"), str)
        self.notes.bytes_taken |= self.tokenize is text_bytes
        return as_names(self.tokenize(text))

    def _reply(self, fields: Mapping[str, Any]) -> tuple[Names, int]:
        """Tokens as far as they are there, and how many there were."""
        answer = next((_decoded(fields[name]) for name in _ANSWERS if fields.get(name) is not None), None)
        text = answer_text(answer)
        ids = fields.get("output_token_ids", fields.get("output_ids"))
        reply = np.empty(0, np.int32)
        if _are_ids(ids):
            reply = as_names(ids)
        elif text:
            reply = as_names(self.tokenize(text))
        count = _output_count(fields, answer)
        if count is None and not len(reply):
            self.notes.no_answer += 1
        return reply, len(reply) if len(reply) else count or 0

    def _ids(self, row: Row, given: Any) -> Names:
        try:
            return np.array(given, np.int32)
        except (OverflowError, ValueError):
            raise UsageError(f"{row.where} has token ids that no model has") from None

    def build(self) -> Trace:
        self.notes.no_time = self.times.count(None)
        self.rows = [replace(row, arrival=at) for row, at in zip(self.rows, _filled(self.times), strict=True)]
        guessed = continued(self.rows, 1) if None in self.keys else None
        self.notes.guessed_sessions = guessed is not None
        self.builder.notes += self.notes.told()
        for index, row in enumerate(self.rows):
            key: object = self.keys[index]
            if key is None and guessed is not None:
                key = guessed[index]
            prompt, reply = row.names[: row.prompt_tokens], row.names[row.prompt_tokens :]
            session = self.builder.session(key)
            self.builder.add_tokens(row.arrival, prompt, reply, row.output_tokens, session, row.scope)
        return self.builder.build(from_zero=True)


def read_requests(source: Source, *, tokenize: Tokenize = text_bytes) -> Trace:
    """Raises UsageError, naming the line at fault."""
    log = _Log(TraceBuilder(source.name, 1), tokenize)
    for row in source.rows():
        log.take(row)
    return log.build()


def find_body(fields: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The part of a line that holds a prompt, if any does."""
    wrapped = (_decoded(fields.get(name)) for name in _BODIES)
    for body in (fields, *(each for each in wrapped if isinstance(each, Mapping))):
        if any(_are_ids(body.get(name)) for name in _IDS):
            return body
        if any(body.get(name) and not isinstance(body[name], Mapping) for name in _PROMPTS):
            return body
    return None


def _time(fields: Mapping[str, Any]) -> float | None:
    times = (seconds_of(fields.get(name)) for name in _TIMES)
    return next((time for time in times if time is not None), None)


def _filled(times: Sequence[float | None]) -> list[float]:
    """Who has no time comes a second after the one before; before all that have one, with the first of these."""
    leading = next((index for index, time in enumerate(times) if time is not None), 0)
    filled = [times[leading] or 0.0] * leading if times else []
    for time in times[leading:]:
        made_up = filled[-1] + 1.0 if filled else 0.0
        filled.append(made_up if time is None else time)
    return filled


def _decoded(value: Any) -> Any:
    """JSON in a text is taken for what it says."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(id) is int for id in value)


def _failed(fields: Mapping[str, Any]) -> bool:
    status = fields.get("status_code")
    return fields.get("status") in ("failure", "error") or (isinstance(status, int) and status >= 400)


def _output_count(fields: Mapping[str, Any], answer: Any) -> int | None:
    usages = [fields.get("usage"), answer.get("usage") if isinstance(answer, Mapping) else None, fields]
    for usage in usages:
        for name in _OUTPUT_COUNTS:
            count = usage.get(name) if isinstance(usage, Mapping) else None
            if type(count) is int and 0 <= count < 2**31:
                return count
    return None


def _session(fields: Mapping[str, Any], body: Mapping[str, Any]) -> str | None:
    metadata = fields.get("metadata")
    inner = metadata.get("requester_metadata") if isinstance(metadata, Mapping) else None
    for place in (fields, body, metadata, inner):
        for name in _SESSIONS:
            if isinstance(place, Mapping) and place.get(name):
                return str(place[name])
    return None


def _scope(fields: Mapping[str, Any], body: Mapping[str, Any]) -> str:
    """Models do not read each other's KV, nor should tenants."""
    tags = fields.get("tags")
    tenant = fields.get("tenant") or (tags.get("tenant") if isinstance(tags, Mapping) else None)
    model = body.get("model") or fields.get("model")
    return "/".join(str(part) for part in (tenant, model) if part)
