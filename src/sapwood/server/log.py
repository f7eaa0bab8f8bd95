"""One record per request on stderr: what was asked, what it cost, how it ended."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal, TextIO

Ending = Literal["done", "cancelled", "failed"]

QUIET_PATHS = frozenset({"/health", "/metrics"})
"""Polled all day: not worth a line each."""


RECORD_KEY = "sapwood.record"
"""Where a request's Record lies in its ASGI scope."""


@dataclass(slots=True)
class Record:
    """Filled while a request is served; `seconds` and `first_token_seconds` count from its arrival."""

    id: str
    method: str
    path: str
    status: int | None = None
    ending: Ending = "done"
    prompt_tokens: int | None = None
    reused_tokens: int | None = None
    missed_tokens: Mapping[str, int] | None = None
    """By reason."""
    completion_tokens: int | None = None
    first_token_seconds: float | None = None
    seconds: float = 0.0
    tenant: str = ""
    """Whose key it came with; "" where no tenants are configured, or for no known key."""


class RequestLog:
    """Writes records, as text for people or as one JSON object per line."""

    def __init__(self, *, as_json: bool, out: TextIO | None = None) -> None:
        self._as_json, self._out = as_json, out

    def write(self, record: Record) -> None:
        if record.path in QUIET_PATHS and record.ending == "done":
            return
        line = json.dumps(asdict(record)) if self._as_json else _text(record)
        print(line, file=self._out or sys.stderr, flush=True)


def _text(record: Record) -> str:
    parts = [f"{record.method} {record.path}", str(record.status or "-")]
    if record.tenant:
        parts.append(record.tenant)
    if record.prompt_tokens is not None:
        parts.append(f"reused {record.reused_tokens} of {record.prompt_tokens} tokens")
    if record.completion_tokens is not None:
        parts.append(f"wrote {record.completion_tokens}")
    parts.append(f"{record.seconds:.2f} s")
    if record.ending != "done":
        parts.append(record.ending)
    # A path may hold anything a client likes to send: no control character reaches the terminal.
    return " · ".join("".join(c if c.isprintable() else "?" for c in part) for part in parts)
