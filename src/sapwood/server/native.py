"""What the native dialects' routes share: checks at the door, and handlers that answer in their dialect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sapwood.errors import ContextLengthError
from sapwood.server.generate import Order
from sapwood.server.wire import WIRE_KEY, Wire
from sapwood.types import Request

Handler = Callable[[HttpRequest], Awaitable[Response]]


class DialectEndpoint:
    """A handler whose errors are told as `wire` tells them."""

    def __init__(self, wire: Wire, handler: Handler) -> None:
        self.wire, self._handler = wire, handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[WIRE_KEY] = self.wire
        response = await self._handler(HttpRequest(scope, receive))
        await response(scope, receive, send)


def fitted(order: Order, request: Request, *, cut: bool, param: str = "prompt") -> Request:
    """`request` if the engine will take it. Raises RequestError, ContextLengthError for a prompt too long.

    Where `cut` is true, an answer longer than what is left beside the prompt is let end there instead: clients
    ask for a lot of tokens by habit. `param` is the field that holds the prompt.
    """
    params = request.params
    if cut and len(request.prompt) + (params.max_tokens or 0) > order.longest:
        request = replace(request, params=replace(params, max_tokens=None))
    try:
        order.built.loop.check(request)
    except ContextLengthError as error:
        raise ContextLengthError(error.message, param=param, hint="shorten the prompt") from None
    return request
