"""Logs of requests, one JSON object a line, as clients of OpenAI's and Anthropic's routes and gateways keep them.

A line is a body (`messages`, `prompt`, `input`), or token ids (`token_ids`), or either in a wrapper, perhaps as a text
in JSON. Time, session, tenant, usage and answer are taken where one of the usual names has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sapwood.sim.readers.builder import TraceBuilder
from sapwood.sim.readers.call import NOTHING, Call, Said, said
from sapwood.sim.readers.calls import trace_of
from sapwood.sim.readers.fields import answer_of, decoded, has_failed, scope_of, session_of, time_of
from sapwood.sim.readers.source import Row, Source
from sapwood.sim.readers.texts import FLATTENED, PROMPTS, answer_text, is_prompt, text_of
from sapwood.sim.readers.tokenize import A_BYTE, Tokenize, text_bytes
from sapwood.sim.readers.usage import usage_of
from sapwood.sim.readers.values import are_ids, ids_of
from sapwood.sim.trace import Trace

_IDS = ("token_ids", "prompt_token_ids", "input_ids")
_BODIES = ("request_body", "request", "body", "kwargs", "input", "proxy_server_request")
_LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens", "max_new_tokens")


@dataclass(slots=True)
class _Notes:
    """What was met on the way."""

    flattened: bool = False
    bytes_taken: bool = False
    skipped: int = 0
    failed: int = 0

    def told(self) -> Iterator[str]:
        if self.flattened:
            yield FLATTENED
        for count, what in (
            (self.skipped, "lines without a prompt are left out"),
            (self.failed, "requests that failed are left out"),
        ):
            if count:
                yield f"{count} {what}"


@dataclass(slots=True)
class _Log:
    builder: TraceBuilder
    tokenize: Tokenize | None
    notes: _Notes = field(default_factory=_Notes)
    calls: list[Call] = field(default_factory=list)

    def take(self, row: Row) -> None:
        body, notes = find_body(row.fields), self.notes
        if body is None:
            notes.skipped += 1
        elif has_failed(row.fields):
            notes.failed += 1
        else:
            self._take(row, body)

    def _take(self, row: Row, body: Mapping[str, Any]) -> None:
        prompt, fields = self._prompt(body), row.fields
        if not len(prompt):
            self.notes.skipped += 1
            return
        answer = answer_of(fields)
        call = Call(
            time_of(fields),
            prompt,
            self._reply(row, answer),
            usage_of(fields, answer),
            _limit(body),
            session_of(fields, body),
            self.builder.scope(scope_of(fields, body)),
        )
        self.calls.append(call)

    def _prompt(self, body: Mapping[str, Any]) -> Said:
        given = next((body[name] for name in (*_IDS, "prompt", "input") if are_ids(body.get(name))), None)
        if given is not None:
            return ids_of(given)
        self.notes.flattened |= not isinstance(body.get("prompt") or None, str)
        self.notes.bytes_taken |= self.tokenize is text_bytes
        return said(text_of(body), self.tokenize)

    def _reply(self, row: Row, answer: Any) -> Said:
        """As far as it is there."""
        ids = row.fields.get("output_token_ids", row.fields.get("output_ids"))
        if are_ids(ids):
            return ids_of(ids)
        text = answer_text(answer)
        return said(text, self.tokenize) if text else NOTHING


def read_requests(
    source: Source, *, tokenize: Tokenize | None = None, output_tokens: int | None = None
) -> Trace:
    """Raises UsageError, naming the line at fault.

    Args:
        tokenize: of texts; None counts their bytes, scaled to what the log's usage tells.
        output_tokens: of each answer of unknown length.
    """
    log = _Log(TraceBuilder(source.name, 1), tokenize)
    for row in source.rows():
        with row.at_fault():
            log.take(row)
    log.builder.notes += log.notes.told()
    if log.notes.bytes_taken:
        log.builder.assumed.append(A_BYTE)
    return trace_of(log.builder, log.calls, output_tokens=output_tokens)


def find_body(fields: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The part of a line that holds a prompt, if any does."""
    wrapped = (decoded(fields.get(name)) for name in _BODIES)
    for body in (fields, *(each for each in wrapped if isinstance(each, Mapping))):
        if any(are_ids(body.get(name)) for name in _IDS):
            return body
        body = _with_messages(body)
        if any(is_prompt(body.get(name)) for name in PROMPTS):
            return body
    return None


def _with_messages(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """LiteLLM's spend log has messages as a text in JSON: `{}` where it does not store prompts."""
    messages = body.get("messages")
    return {**body, "messages": decoded(messages)} if isinstance(messages, str) else body


def _limit(body: Mapping[str, Any]) -> int | None:
    inner = body.get("sampling_params")
    for place in (body, inner if isinstance(inner, Mapping) else {}):
        for name in _LIMITS:
            if type(place.get(name)) is int and place[name] > 0:
                return int(place[name])
    return None
