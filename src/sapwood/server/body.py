"""Reads a request's body, up to a limit."""

from __future__ import annotations

from starlette.requests import ClientDisconnect, Request

from sapwood.server.errors import BodyTooLargeError, ClientGoneError


async def read_limited(request: Request, limit: int) -> bytes:
    """The whole body. Raises BodyTooLargeError as soon as it is known to be longer than `limit` bytes."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared[:20]) > limit:
        raise BodyTooLargeError(limit)
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise BodyTooLargeError(limit)
    except ClientDisconnect:
        raise ClientGoneError from None
    return bytes(body)
