"""How the Gemini dialect goes over HTTP: its stream's frames, and Google's shape of errors."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from starlette.types import Scope

from sapwood.chat import Json, encode_event
from sapwood.errors import RequestError
from sapwood.server.errors import error_json, status_of
from sapwood.server.wire import Wire

_NAMES: Mapping[int, str] = MappingProxyType(
    {
        400: "INVALID_ARGUMENT",
        401: "UNAUTHENTICATED",
        403: "PERMISSION_DENIED",
        404: "NOT_FOUND",
        408: "DEADLINE_EXCEEDED",
        429: "RESOURCE_EXHAUSTED",
        500: "INTERNAL",
        503: "UNAVAILABLE",
        504: "DEADLINE_EXCEEDED",
    }
)

_KEY = b"x-goog-api-key"


class CachedContentGoneError(RequestError):
    """There is no such object: never made, deleted, expired, or another tenant's (HTTP 403, as Google has it)."""

    def __init__(self) -> None:
        super().__init__("CachedContent not found (or permission denied)", param="cachedContent")


class CachedContentsFullError(RequestError):
    """No room for another object (HTTP 429): those that are there were promised a time."""

    def __init__(self) -> None:
        super().__init__(
            "there is no room for another cached content; those that live were promised their time",
            param="contents",
            hint="delete one, or wait for one to expire",
        )


def speaks_gemini(scope: Scope) -> bool:
    """Whether a request that no route of a dialect took came from a client of this one."""
    return scope["path"].startswith("/v1beta/") or any(name == _KEY for name, _ in scope["headers"])


def _status(error: Exception) -> int:
    if isinstance(error, CachedContentGoneError):
        return 403
    return 429 if isinstance(error, CachedContentsFullError) else status_of(error)


def _error(error: Exception, _request_id: str) -> Json:
    code = _status(error)
    status = _NAMES.get(code, "INVALID_ARGUMENT" if code < 500 else "INTERNAL")
    return {"error": {"code": code, "message": error_json(error)["error"]["message"], "status": status}}


# Its clients take every line that is not empty for JSON, so comments would end the stream.
GEMINI = Wire(b"text/event-stream", encode_event, b"", b"\n", _error, _status)
