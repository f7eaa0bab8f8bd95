"""The outermost layer: an id and a log record for every request, and an answer for every failure."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sapwood.errors import UnavailableError
from sapwood.server.errors import ClientGoneError, FramingError
from sapwood.server.log import RECORD_KEY, Record, RequestLog
from sapwood.server.wire import error_response


class Guard:
    """Wraps the app. Whatever escapes it becomes a 500 whose body says nothing about the inside."""

    def __init__(self, app: ASGIApp, log: RequestLog) -> None:
        self._app, self._log = app, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = Record(id=uuid.uuid4().hex, method=scope["method"], path=scope["path"])
        scope[RECORD_KEY] = record
        started = time.monotonic()
        try:
            if _is_framed_twice(scope):
                await error_response(FramingError(), scope)(scope, receive, _tagging(send, record))
                return
            await self._app(scope, receive, _tagging(send, record))
        except ClientGoneError:
            record.ending = "cancelled"
        except asyncio.CancelledError:
            # Only a server that ends without waiting does this; above it nobody is left but the log.
            record.ending = "cancelled"
            if record.status is None:
                error = UnavailableError("the server has stopped")
                await error_response(error, scope)(scope, receive, _tagging(send, record))
        except Exception as error:
            record.ending = "failed"
            logging.getLogger("sapwood").exception("request %s failed", record.id)
            if record.status is None:
                await error_response(error, scope)(scope, receive, _tagging(send, record))
        finally:
            record.seconds = time.monotonic() - started
            self._log.write(record)


def _is_framed_twice(scope: Scope) -> bool:
    names = {name for name, _ in scope["headers"]}
    return b"content-length" in names and b"transfer-encoding" in names


def _tagging(send: Send, record: Record) -> Send:
    async def tagged(message: Message) -> None:
        if message["type"] == "http.response.start":
            record.status = message["status"]
            # OpenAI's name for it, and Anthropic's.
            id = f"req-{record.id}".encode()
            message["headers"] = [*message["headers"], (b"x-request-id", id), (b"request-id", id)]
        await send(message)

    return tagged
