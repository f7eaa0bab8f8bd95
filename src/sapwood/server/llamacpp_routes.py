"""llama.cpp's native routes: `/completion`, and what its users ask of a server."""

from __future__ import annotations

import time
from dataclasses import asdict
from itertools import chain

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sapwood import __version__
from sapwood.chat import (
    KEEP_ALIVE,
    Json,
    Place,
    Render,
    encode_continuation,
    encode_event,
    encode_prompt,
    place_in_prompt,
    read_json,
)
from sapwood.chat.llamacpp import LlamaCall, Piece, parse_llama_completion
from sapwood.chat.llamacpp_render import LlamaAnswer, LlamaShape, LlamaStream, settings_json
from sapwood.errors import ContextLengthError
from sapwood.server.errors import error_json, status_of
from sapwood.server.explain import Explanations
from sapwood.server.generate import GenerateEndpoint, Job, Order
from sapwood.server.native import DialectEndpoint, fitted
from sapwood.server.openai_routes import check_model
from sapwood.server.slot import Slot
from sapwood.server.wire import Wire
from sapwood.types import Request, SamplingParams, Scope


def _error(error: Exception, _request_id: str) -> Json:
    return llama_error(status_of(error), error_json(error)["error"]["message"], _kind(error))


def _kind(error: Exception) -> str:
    if isinstance(error, ContextLengthError):
        return "exceed_context_size_error"
    status = status_of(error)
    kinds = {
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        501: "not_supported_error",
        503: "unavailable_error",
    }
    return kinds.get(status, "invalid_request_error" if status < 500 else "server_error")


def llama_error(status: int, message: str, kind: str) -> Json:
    """An error as llama.cpp writes it: `code` is the HTTP status."""
    return {"error": {"code": status, "message": message, "type": kind}}


LLAMACPP = Wire(b"text/event-stream", encode_event, b"", KEEP_ALIVE, _error)


def prepare_llama_completion(order: Order) -> Job:
    """`POST /completion`."""
    built = order.built
    call = parse_llama_completion(
        read_json(order.body), vocab_size=built.facts.vocab_size, defaults=built.facts.sampling
    )
    check_model(call.model, order.served_name)
    order.room.check_prompts([piece for prompt in call.prompts for piece in prompt])
    id = order.head("llama").id
    requests = _requests(order, id, call)
    shape = LlamaShape(
        order.served_name, len(requests), call.params, call.tokens, call.timed, call.progress, call.only
    )
    make = LlamaStream if call.stream else LlamaAnswer
    render: Render = make(built.tokenizer, shape, time.monotonic)

    def place(prompt: int, token: int) -> Place:
        return place_in_prompt(built.tokenizer, requests[prompt].prompt, token)

    return Job(id, requests, render, call.stream, place, call.ignored)


def _requests(order: Order, id: str, call: LlamaCall) -> tuple[Request, ...]:
    """All checked before the first is submitted. An answer ends where the context does, as llama.cpp's."""
    scope = Scope(tenant=order.caller.tenant, salt=call.salt)
    several = len(call.prompts) > 1
    return tuple(
        fitted(
            order,
            Request(
                id=f"{id}-{i}" if several else id,
                prompt=_encoded(order, pieces),
                params=call.params,
                scope=scope,
                priority=call.priority,
                reuse=call.reuse,
            ),
            cut=True,
        )
        for i, pieces in enumerate(call.prompts)
    )


def _encoded(order: Order, pieces: tuple[Piece, ...]) -> tuple[int, ...]:
    tokenizer = order.built.tokenizer
    rest = (encode_continuation(tokenizer, piece) for piece in pieces[1:])
    return tuple(chain(encode_prompt(tokenizer, pieces[0]), *rest))


class LlamaRoutes:
    """The handlers, bound to one slot."""

    def __init__(self, slot: Slot, explanations: Explanations, max_body_bytes: int) -> None:
        self._slot = slot
        self._completion = GenerateEndpoint(
            prepare_llama_completion, slot, explanations, max_body_bytes, LLAMACPP
        )

    def routes(self) -> list[Route]:
        return [
            Route("/completion", self._completion, methods=["POST"]),
            Route("/completions", self._completion, methods=["POST"]),
            Route("/props", DialectEndpoint(LLAMACPP, self.props), methods=["GET"]),
            Route("/slots", DialectEndpoint(LLAMACPP, self.slots), methods=["GET"]),
            Route("/slots/{id}", DialectEndpoint(LLAMACPP, self.slot_action), methods=["POST"]),
        ]

    async def props(self, _request: HttpRequest) -> Response:
        built = self._slot.get()
        params = settings_json(SamplingParams(max_tokens=None, **asdict(built.facts.sampling)))
        return JSONResponse(
            {
                "default_generation_settings": {"n_ctx": built.facts.max_context, "params": params},
                "model_path": self._slot.name,
                "modalities": {"vision": False, "audio": False},
                "build_info": f"sapwood {__version__}",
            }
        )

    async def slots(self, _request: HttpRequest) -> Response:
        """There are no slots: one entry for each running request, and an idle one if nobody waits."""
        built = self._slot.get()
        stats, context = built.loop.stats(), built.facts.max_context
        busy = [True] * stats.running + [False] * (stats.waiting == 0)
        return JSONResponse(
            [{"id": i, "n_ctx": context, "is_processing": each} for i, each in enumerate(busy)]
        )

    async def slot_action(self, _request: HttpRequest) -> Response:
        message = (
            "there are no slots to save, restore or erase: every request finds every prefix that is cached;"
            " to forget them all, POST /flush_cache"
        )
        return JSONResponse(llama_error(501, message, "not_supported_error"), status_code=501)
