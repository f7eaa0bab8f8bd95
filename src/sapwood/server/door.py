"""Who may come in, and to which routes: every request passes here before any handler sees it.

What is not listed is closed: a new route is for operators alone until it says that tenants may use it, either by
being in the table or by being a `GenerateEndpoint`, which keeps its requests within the caller's own namespace.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import parse_qs

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from sapwood.errors import RequestError
from sapwood.server.caller import CALLER_KEY, Caller
from sapwood.server.errors import AuthenticationError, OperatorOnlyError
from sapwood.server.generate import GenerateEndpoint
from sapwood.server.log import RECORD_KEY
from sapwood.server.tenants import Tenants
from sapwood.server.wire import WIRE_KEY, Wire, error_response

OPEN = frozenset({"/", "/health", "/ping", "/api/hello"})
"""Routes that need no key."""

FOR_TENANTS = frozenset(
    {
        "/v1/models",
        "/v1/models/{id:path}",
        "/v1/messages/count_tokens",
        "/v1/models/{id:path}:countTokens",
        "/v1/cachedContents",
        "/v1/cachedContents/{id}",
        "/v1beta/models",
        "/v1beta/models/{id:path}",
        "/v1beta/models/{id:path}:countTokens",
        "/v1beta/cachedContents",
        "/v1beta/cachedContents/{id}",
        "/v1/requests/{id}/cache",
        "/v1/responses/input_tokens",
        "/v1/responses/{id}",
        "/v1/responses/{id}/cancel",
        "/v1/responses/{id}/input_items",
        "/v1/server",
        "/tokenize",
        "/detokenize",
        "/version",
        "/model_info",
        "/get_model_info",
        "/props",
        "/api/version",
        "/api/tags",
        "/api/ps",
        "/api/show",
    }
)
"""Routes, besides those that generate, which tell a tenant nothing of the others and change nothing of theirs."""

_NOBODY = Caller(operator=False)


class Door:
    """Stands before all routes. Without tenants everyone is the operator."""

    def __init__(self, app: ASGIApp, tenants: Tenants | None) -> None:
        self._app, self._tenants = app, tenants

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                scope[CALLER_KEY] = self._let_in(scope)
            except RequestError as error:
                await error_response(error, scope)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _let_in(self, scope: Scope) -> Caller:
        """Raises AuthenticationError, OperatorOnlyError."""
        if self._tenants is None:
            return Caller()
        route = _route_of(scope)
        endpoint, path = getattr(route, "endpoint", None), getattr(route, "path", None)
        wire = wire_of_endpoint(endpoint)
        if wire is not None:
            scope[WIRE_KEY] = wire
        if path in OPEN:
            return _NOBODY
        caller = _identified(scope, self._tenants)
        scope[RECORD_KEY].tenant = caller.tenant
        usable = route is None or path in FOR_TENANTS or isinstance(endpoint, GenerateEndpoint)
        if not usable and not caller.operator:
            raise OperatorOnlyError(f"{scope['method']} {path}")
        return caller


def _identified(scope: Scope, tenants: Tenants) -> Caller:
    keys = set(_keys(scope))
    if not keys:
        raise AuthenticationError(
            "an API key is required",
            hint="send it as 'Authorization: Bearer …', 'x-api-key: …' or 'x-goog-api-key: …'",
        )
    if len(keys) > 1:
        raise AuthenticationError("the request has two different API keys; it must have one")
    caller = tenants.find(keys.pop())
    if caller is None:
        raise AuthenticationError("the API key is not known here")
    return caller


def wire_of_endpoint(endpoint: object) -> Wire | None:
    """The dialect of a route, if its handler (or the object whose method that is) has one as `wire`."""
    wire = getattr(endpoint, "wire", None) or getattr(getattr(endpoint, "__self__", None), "wire", None)
    return wire if isinstance(wire, Wire) else None


def _route_of(scope: Scope) -> BaseRoute | None:
    """The route that will serve a request; None where none will (404, 405)."""
    for route in scope["app"].routes:
        if route.matches(scope)[0] is Match.FULL:
            found: BaseRoute = route
            return found
    return None


def _keys(scope: Scope) -> Iterable[bytes]:
    """What a request offers as its key, wherever the dialects put it."""
    for name, value in scope["headers"]:
        if name in (b"x-api-key", b"x-goog-api-key") and value.strip():
            yield value.strip()
        scheme, _, token = value.strip().partition(b" ")
        if name == b"authorization" and scheme.lower() == b"bearer" and token.strip():
            yield token.strip()
    # Latin-1 carries any bytes there and back.
    for text in parse_qs(scope["query_string"].decode("latin-1"), encoding="latin-1").get("key", ()):
        yield text.encode("latin-1")
