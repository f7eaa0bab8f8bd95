"""Where logs of requests keep time, session, tenant and answer, under the usual names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sapwood.sim.readers.timestamps import seconds_of
from sapwood.sim.readers.values import parsed

_ANSWERS = ("response_body", "response", "output", "completion_response", "out")
_TIMES = (
    "timestamp",
    "@timestamp",
    "ts",
    "created_at",
    "request_time",
    "request_created_at",
    "starttime",
    "start_time",
    "starttimeunixnano",
    "start_time_unix_nano",
    "time",
    "created",
    "t",
)
_SESSIONS = ("session_id", "sessionid", "conversation_id", "chat_id", "thread_id", "prompt_cache_key")


def time_of(fields: Mapping[str, Any]) -> float | None:
    """Seconds since 1970, or since whatever began. Raises ValueError for what is no time."""
    named = by_plain_name(fields)
    times = (seconds_of(named.get(name)) for name in _TIMES)
    return next((time for time in times if time is not None), None)


def times_among(columns: Iterable[str]) -> list[str]:
    """Those of a table's columns that tell a time, the one to be believed first."""
    of_plain = {plain(name): name for name in columns}
    return [of_plain[name] for name in _TIMES if name in of_plain]


def answer_of(fields: Mapping[str, Any]) -> Any:
    return next((decoded(fields[name]) for name in _ANSWERS if fields.get(name) is not None), None)


def session_of(fields: Mapping[str, Any], body: Mapping[str, Any]) -> str | None:
    metadata = decoded(fields.get("metadata"))
    inner = metadata.get("requester_metadata") if isinstance(metadata, Mapping) else None
    for place in (fields, body, metadata, inner):
        named = by_plain_name(place) if isinstance(place, Mapping) else {}
        for name in _SESSIONS:
            if named.get(name):
                return str(named[name])
    return None


def scope_of(fields: Mapping[str, Any], body: Mapping[str, Any]) -> str:
    """Models do not read each other's KV, nor should tenants."""
    tags = fields.get("tags")
    tenant = fields.get("tenant") or (tags.get("tenant") if isinstance(tags, Mapping) else None)
    model = body.get("model") or fields.get("model")
    return "/".join(str(part) for part in (tenant, model) if part)


def has_failed(fields: Mapping[str, Any]) -> bool:
    named = by_plain_name(fields)
    return any(_is_failure(str(named.get(name, ""))) for name in ("status", "status_code"))


def _is_failure(status: str) -> bool:
    code = status.isascii() and status.isdigit() and len(status) == 3
    return status in ("failure", "error") or (code and status >= "400")


def by_plain_name(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """`Prompt Tokens`, as a table for people may head it, is `prompt_tokens`."""
    return {plain(name): value for name, value in fields.items()}


def plain(name: str) -> str:
    return name.strip().lower().replace(" ", "_")


def decoded(value: Any) -> Any:
    """JSON in a text is taken for what it says."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return parsed(value)
        except ValueError:
            return value
    return value
