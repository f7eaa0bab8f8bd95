"""Reads a request's body: up to a limit, and not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.requests import Request
from starlette.types import Message, Receive

from sapwood.server.errors import BodyNotReadError, BodyTimeoutError, BodyTooLargeError, ClientGoneError

PATIENCE_SECONDS = 60.0
"""Silence in the middle of a body after which the client is given up."""

REST_BYTES = 64 * 2**20
REST_SECONDS = 5.0
"""How much of a body that is too long is read all the same: many clients read no answer before all is sent."""

_GLANCE_SECONDS = 0.25


async def read_limited(request: Request, limit: int, stopping: Callable[[], bool] = lambda: False) -> bytes:
    """The whole body. Raises BodyTooLargeError for one of more than `limit` bytes.

    Raises BodyTimeoutError when the client falls silent, BodyNotReadError as soon as `stopping` is true and the
    body is not there yet.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared[:20]) > limit:
        if request.headers.get("expect", "").lower() != "100-continue":
            await _discard(request.receive)
        raise BodyTooLargeError(limit)
    body = bytearray()
    more = True
    while more:
        message = await _next(request.receive, stopping)
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > limit:
            if more:
                await _discard(request.receive)
            raise BodyTooLargeError(limit)
    return bytes(body)


async def _next(receive: Receive, stopping: Callable[[], bool]) -> Message:
    waiting = asyncio.ensure_future(receive())
    waited = 0.0
    try:
        while not waiting.done():
            if stopping():
                raise BodyNotReadError
            if waited >= PATIENCE_SECONDS:
                raise BodyTimeoutError(PATIENCE_SECONDS)
            await asyncio.wait({waiting}, timeout=_GLANCE_SECONDS)
            waited += _GLANCE_SECONDS
    finally:
        waiting.cancel()
    message = waiting.result()
    if message["type"] == "http.disconnect":
        raise ClientGoneError
    return message


async def _discard(receive: Receive) -> None:
    room, more = REST_BYTES, True
    try:
        async with asyncio.timeout(REST_SECONDS):
            while more and room > 0:
                message = await receive()
                room -= len(message.get("body", b""))
                more = message.get("more_body", False)
    except TimeoutError:
        return
