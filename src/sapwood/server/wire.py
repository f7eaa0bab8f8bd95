"""How one dialect goes over HTTP: the frames of its streams, and what its errors look like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.responses import JSONResponse
from starlette.types import Scope

from sapwood.chat import DONE, KEEP_ALIVE, Json, encode_event
from sapwood.server.errors import error_headers, error_json, status_of
from sapwood.server.log import RECORD_KEY

WIRE_KEY = "sapwood.wire"
"""Where the dialect of a request lies in its ASGI scope, once its route is known."""


@dataclass(frozen=True, slots=True)
class Wire:
    """Attributes:
    content_type: of a stream.
    frame: one chunk of a stream.
    end: what ends a stream.
    keep_alive: what says in a stream that it is still there.
    error: the body of an error, given the request's id; in a stream it is framed as a chunk.
    status: of an error.
    """

    content_type: bytes
    frame: Callable[[Json], bytes]
    end: bytes
    keep_alive: bytes
    error: Callable[[Exception, str], Json]
    status: Callable[[Exception], int] = status_of


def _openai_error(error: Exception, _request_id: str) -> Json:
    return error_json(error)


OPENAI = Wire(b"text/event-stream", encode_event, DONE, KEEP_ALIVE, _openai_error)


def error_response(error: Exception, scope: Scope) -> JSONResponse:
    """The whole answer, in the dialect of the request."""
    wire = wire_of(scope)
    record = scope.get(RECORD_KEY)
    body = wire.error(error, "" if record is None else f"req-{record.id}")
    return JSONResponse(body, status_code=wire.status(error), headers=error_headers(error))


def wire_of(scope: Scope) -> Wire:
    """The dialect in which a request is answered; OpenAI's where no route has said another."""
    wire: Wire = scope.get(WIRE_KEY, OPENAI)
    return wire
