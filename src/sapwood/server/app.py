"""The ASGI app: routes, the guard around them, and errors in one shape."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sapwood.config import ServerConfig
from sapwood.errors import SapwoodError
from sapwood.server.errors import route_error
from sapwood.server.explain import Explanations
from sapwood.server.generate import GenerateEndpoint
from sapwood.server.guard import Guard
from sapwood.server.log import RequestLog
from sapwood.server.openai_routes import prepare_chat, prepare_completion
from sapwood.server.pins import PinRoutes
from sapwood.server.ports import Built
from sapwood.server.slot import Slot
from sapwood.server.status import StatusRoutes
from sapwood.server.wire import error_response


def create_app(built: Built | Slot, config: ServerConfig) -> Starlette:
    """The app for a built model, or for one that will be in the slot later (503 until then)."""
    slot = built if isinstance(built, Slot) else Slot(built, config.served_model_name)
    explanations = Explanations()
    generating = {"/v1/chat/completions": prepare_chat, "/v1/completions": prepare_completion}
    routes = [
        Route(path, GenerateEndpoint(prepare, slot, explanations, config.max_body_bytes), methods=["POST"])
        for path, prepare in generating.items()
    ]
    app = Starlette(
        routes=[
            *routes,
            *StatusRoutes(slot, explanations, config).routes(),
            *PinRoutes(slot, config.max_body_bytes).routes(),
        ],
        middleware=[Middleware(Guard, log=RequestLog(as_json=config.log_json))],
        exception_handlers={HTTPException: _answer_route_error, SapwoodError: _answer_error},
    )
    app.router.redirect_slashes = False
    return app


async def _answer_error(request: Request, error: Exception) -> Response:
    return error_response(error, request.scope)


async def _answer_route_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return error_response(route_error(error, request.method, request.url.path), request.scope)
