"""The ASGI app: routes, the guard around them, and errors in one shape."""

from __future__ import annotations

import os

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sapwood.config import ServerConfig
from sapwood.errors import SapwoodError
from sapwood.server.anthropic_routes import ANTHROPIC, AnthropicRoutes
from sapwood.server.clock_routes import ClockRoutes
from sapwood.server.decisions_routes import prepare_decisions
from sapwood.server.door import Door
from sapwood.server.errors import route_error
from sapwood.server.explain import Explanations
from sapwood.server.gemini_routes import GeminiRoutes
from sapwood.server.gemini_wire import GEMINI, speaks_gemini
from sapwood.server.generate import GenerateEndpoint
from sapwood.server.guard import Guard
from sapwood.server.llamacpp_routes import LlamaRoutes
from sapwood.server.log import RequestLog
from sapwood.server.ollama_routes import OLLAMA, OllamaRoutes
from sapwood.server.openai_routes import prepare_chat, prepare_completion
from sapwood.server.pins import PinRoutes
from sapwood.server.ports import Built
from sapwood.server.responses_routes import ResponsesRoutes
from sapwood.server.sglang_routes import SglangRoutes
from sapwood.server.slot import Slot
from sapwood.server.status import StatusRoutes
from sapwood.server.tenants import load_tenants
from sapwood.server.vllm_routes import VllmRoutes
from sapwood.server.wire import WIRE_KEY, error_response


def create_app(built: Built | Slot, config: ServerConfig) -> Starlette:
    """The app for a built model, or for one that will be in the slot later (503 until then).

    Raises UsageError for a tenants file that cannot be used.
    """
    tenants = None if config.api_keys is None else load_tenants(config.api_keys, os.environ)
    slot = built if isinstance(built, Slot) else Slot(built, config.served_model_name, config)
    if tenants is not None:
        slot.serve_for(tenants)
    explanations = Explanations()
    generating = {
        "/v1/chat/completions": prepare_chat,
        "/v1/completions": prepare_completion,
        "/v1/decisions": prepare_decisions,
    }
    routes = [
        Route(path, GenerateEndpoint(prepare, slot, explanations, config.max_body_bytes), methods=["POST"])
        for path, prepare in generating.items()
    ]
    app = Starlette(
        routes=[
            *routes,
            *StatusRoutes(slot, explanations, config, tenants).routes(),
            *PinRoutes(slot, config.max_body_bytes).routes(),
            *AnthropicRoutes(slot, explanations, config.max_body_bytes).routes(),
            *GeminiRoutes(slot, explanations, config.max_body_bytes).routes(),
            *SglangRoutes(slot, explanations, config.max_body_bytes).routes(),
            *VllmRoutes(slot).routes(),
            *LlamaRoutes(slot, explanations, config.max_body_bytes).routes(),
            *OllamaRoutes(slot, explanations, config.max_body_bytes).routes(),
            *ResponsesRoutes(slot, explanations, config.max_body_bytes).routes(),
            *(ClockRoutes(slot, config.max_body_bytes).routes() if config.step_ledger_clock else ()),
        ],
        middleware=[
            Middleware(Guard, log=RequestLog(as_json=config.log_json)),
            Middleware(Door, tenants=tenants),
        ],
        exception_handlers={HTTPException: _answer_route_error, SapwoodError: _answer_error},
    )
    app.router.redirect_slashes = False
    return app


async def _answer_error(request: Request, error: Exception) -> Response:
    return error_response(error, request.scope)


async def _answer_route_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if "anthropic-version" in request.headers:
        request.scope.setdefault(WIRE_KEY, ANTHROPIC)
    elif speaks_gemini(request.scope):
        request.scope.setdefault(WIRE_KEY, GEMINI)
    elif request.url.path.startswith("/api/"):
        request.scope.setdefault(WIRE_KEY, OLLAMA)
    return error_response(route_error(error, request.method, request.url.path), request.scope)
