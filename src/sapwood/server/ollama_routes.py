"""Ollama's routes: `/api/chat`, `/api/generate`, and what its clients ask of a server."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sapwood import __version__
from sapwood.chat import (
    Conversation,
    Json,
    Place,
    Render,
    encode_conversation,
    encode_prompt,
    place_in_conversation,
    place_in_prompt,
    read_json,
)
from sapwood.chat.ollama import OllamaCall, parse_ollama_chat, parse_ollama_generate
from sapwood.chat.ollama_render import OllamaAnswer, OllamaShape, OllamaStream
from sapwood.errors import NotFoundError, RequestError
from sapwood.server.body import read_limited
from sapwood.server.errors import error_json
from sapwood.server.explain import Explanations
from sapwood.server.generate import GenerateEndpoint, Job, Order
from sapwood.server.native import DialectEndpoint, fitted
from sapwood.server.slot import Slot
from sapwood.server.wire import Wire
from sapwood.types import Request, Scope

LATEST = ":latest"
"""Ollama's tag for a name that has none."""


def _frame(line: Json) -> bytes:
    return json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _error(error: Exception, _request_id: str) -> Json:
    return {"error": error_json(error)["error"]["message"]}


# Its clients parse every line as an answer, so nothing can be said in silence.
OLLAMA = Wire(b"application/x-ndjson", _frame, b"", b"", _error)


def prepare_ollama_chat(order: Order) -> Job:
    """`POST /api/chat`."""
    facts = order.built.facts
    call = parse_ollama_chat(read_json(order.body), vocab_size=facts.vocab_size, defaults=facts.sampling)
    return _job(order, call, "chat")


def prepare_ollama_generate(order: Order) -> Job:
    """`POST /api/generate`."""
    facts = order.built.facts
    call = parse_ollama_generate(read_json(order.body), vocab_size=facts.vocab_size, defaults=facts.sampling)
    return _job(order, call, "generate")


def check_ollama_model(asked: str | None, served: str) -> None:
    """Raises NotFoundError for a model that is not served here; naming none is fine."""
    if asked is not None and asked.removesuffix(LATEST) != served.removesuffix(LATEST):
        raise NotFoundError(
            f"model {asked[:100]!r} not found; this server has {served!r}",
            param="model",
            code="model_not_found",
        )


def _job(order: Order, call: OllamaCall, kind: Literal["chat", "generate"]) -> Job:
    check_ollama_model(call.model, order.served_name)
    id, model = order.head("ollama").id, call.model or order.served_name
    request = _request(order, id, call)
    if request is None:
        # Nothing to compute: the model is there.
        render: Render = OllamaAnswer(OllamaShape(model, order.created, kind), time.monotonic)
        return Job(id, (), render, False, _nowhere, call.ignored)
    shape = OllamaShape(
        model,
        order.created,
        kind,
        request.prompt,
        with_context=kind == "generate" and isinstance(call.prompt, Conversation),
    )
    render = (OllamaStream if call.stream else OllamaAnswer)(shape, time.monotonic)

    def place(_prompt: int, token: int) -> Place:
        built = order.built
        if call.context or not isinstance(call.prompt, Conversation):
            return place_in_prompt(built.tokenizer, request.prompt, token)
        return place_in_conversation(
            built.tokenizer, order.room.lengths, built.template, call.prompt, request.prompt, token
        )

    return Job(id, (request,), render, call.stream, place, call.ignored)


def _request(order: Order, id: str, call: OllamaCall) -> Request | None:
    """None where there is no prompt. An answer ends where the context does, as Ollama's."""
    built = order.built
    if call.prompt is None:
        if call.unload:
            raise RequestError(
                "this server keeps its one model in memory; 'keep_alive' of 0 cannot unload it",
                param="keep_alive",
            )
        return None
    if isinstance(call.prompt, Conversation):
        order.room.check_conversation(call.prompt)
        tokens = encode_conversation(built.tokenizer, built.template, call.prompt)
    else:
        order.room.check(call.prompt, "prompt")
        tokens = encode_prompt(built.tokenizer, call.prompt)
    scope = Scope(tenant=order.caller.tenant, salt=call.salt)
    return fitted(
        order, Request(id=id, prompt=(*call.context, *tokens), params=call.params, scope=scope), cut=True
    )


def _nowhere(_prompt: int, _token: int) -> Place:
    raise AssertionError("there is no prompt")


class OllamaRoutes:
    """The handlers, bound to one slot."""

    def __init__(self, slot: Slot, explanations: Explanations, max_body_bytes: int) -> None:
        self._slot, self._max_body_bytes = slot, max_body_bytes
        self._generating = {
            path: GenerateEndpoint(prepare, slot, explanations, max_body_bytes, OLLAMA)
            for path, prepare in (
                ("/api/chat", prepare_ollama_chat),
                ("/api/generate", prepare_ollama_generate),
            )
        }

    def routes(self) -> list[Route]:
        asked = {"/api/tags": self.tags, "/api/ps": self.ps, "/api/version": self.version}
        return [
            *(Route(path, endpoint, methods=["POST"]) for path, endpoint in self._generating.items()),
            *(
                Route(path, DialectEndpoint(OLLAMA, handler), methods=["GET"])
                for path, handler in asked.items()
            ),
            Route("/api/show", DialectEndpoint(OLLAMA, self.show), methods=["POST"]),
        ]

    async def version(self, _request: HttpRequest) -> Response:
        return JSONResponse({"version": __version__})

    async def tags(self, _request: HttpRequest) -> Response:
        return JSONResponse({"models": [{**self._model(), "modified_at": self._created()}]})

    async def ps(self, _request: HttpRequest) -> Response:
        context = self._slot.get().facts.max_context
        return JSONResponse({"models": [{**self._model(), "size_vram": 0, "context_length": context}]})

    async def show(self, request: HttpRequest) -> Response:
        built = self._slot.get()
        fields = read_json(await read_limited(request, self._max_body_bytes, lambda: self._slot.stopping))
        check_ollama_model(_asked(fields), self._slot.name)
        return JSONResponse(
            {
                "details": {},
                "model_info": {
                    "general.basename": self._slot.name,
                    "sapwood.context_length": built.facts.max_context,
                },
                "capabilities": ["completion"],
                "modified_at": self._created(),
            }
        )

    def _model(self) -> Json:
        """What is known of the model; how large its file is, is not."""
        name = self._slot.name
        tagged = name if ":" in name else name + LATEST
        return {"name": tagged, "model": tagged, "digest": self._slot.get().facts.fingerprint, "details": {}}

    def _created(self) -> str:
        return datetime.fromtimestamp(self._slot.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _asked(fields: Mapping[str, Any]) -> str:
    """The model's name, also under the field's older name."""
    name = fields.get("model") or fields.get("name")
    if not isinstance(name, str):
        raise RequestError("'model' is required", param="model", code="missing_required_parameter")
    return name
