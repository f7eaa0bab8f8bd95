"""Ollama's routes: `/api/chat`, `/api/generate`, and what its clients ask of a server."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from sapwood import __version__
from sapwood.chat import (
    Conversation,
    Json,
    Place,
    Render,
    ToolReading,
    encode_prompt,
    place_in_prompt,
    read_json,
)
from sapwood.chat.ollama import OllamaCall, parse_ollama_chat, parse_ollama_generate
from sapwood.chat.ollama_render import OllamaAnswer, OllamaShape, OllamaStream
from sapwood.chat.thinking import prompted
from sapwood.errors import NotFoundError, RequestError
from sapwood.server.body import read_limited
from sapwood.server.chat_prompt import ChatPrompt, answer_form, chat_prompt
from sapwood.server.errors import error_json
from sapwood.server.explain import Explanations
from sapwood.server.generate import GenerateEndpoint, Job, Order
from sapwood.server.native import DialectEndpoint, fitted
from sapwood.server.slot import Slot
from sapwood.server.wire import Wire
from sapwood.types import Request, SamplingParams, Scope

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


@dataclass(frozen=True, slots=True)
class _Prompt:
    """Attributes:
    chat: the conversation as its template is given it; None of a raw text.
    reading: how thoughts and calls are found in the answer; None where it is all text.
    """

    tokens: tuple[int, ...]
    params: SamplingParams
    chat: ChatPrompt | None = None
    reading: ToolReading | None = None


def _job(order: Order, call: OllamaCall, kind: Literal["chat", "generate"]) -> Job:
    check_ollama_model(call.model, order.served_name)
    built, id, model = order.built, order.head("ollama").id, call.model or order.served_name
    if call.think and not built.template.thinks:
        raise RequestError(
            f"'think' is {json.dumps(call.think)}; {model[:100]!r} does not support thinking", param="think"
        )
    prompt = _prompt(order, call)
    if prompt is None:
        # Nothing to compute: the model is there.
        shape = OllamaShape(model, order.created, kind)
        render: Render = OllamaAnswer(shape, built.tokenizer, time.monotonic)
        return Job(id, (), render, False, _nowhere, call.ignored)
    tokens = (*call.context, *prompt.tokens)
    scope = Scope(tenant=order.caller.tenant, salt=call.salt)
    request = fitted(order, Request(id=id, prompt=tokens, params=prompt.params, scope=scope), cut=True)
    shape = OllamaShape(
        model,
        order.created,
        kind,
        tokens,
        with_context=kind == "generate" and prompt.chat is not None,
        reading=prompt.reading,
        logprobs=call.params.logprobs is not None,
    )
    render = (OllamaStream if call.stream else OllamaAnswer)(shape, built.tokenizer, time.monotonic)
    if prompt.chat is not None:
        render = prompt.chat.remembered(render, request, prompt.reading)

    def place(n: int, token: int) -> Place:
        if call.context or prompt.chat is None:
            return place_in_prompt(built.tokenizer, tokens, token)
        return prompt.chat.place(n, token)

    return Job(id, (request,), render, call.stream, place, call.ignored)


def _prompt(order: Order, call: OllamaCall) -> _Prompt | None:
    """None where there is nothing to say."""
    if isinstance(call.prompt, Conversation):
        return _chat_prompt(order, call, call.prompt)
    if call.prompt is not None:
        order.room.check(call.prompt, "prompt")
        return _Prompt(encode_prompt(order.built.tokenizer, call.prompt), call.params)
    if call.unload:
        raise RequestError(
            "this server keeps its one model in memory; 'keep_alive' of 0 cannot unload it",
            param="keep_alive",
        )
    return None


def _chat_prompt(order: Order, call: OllamaCall, conversation: Conversation) -> _Prompt:
    """Where the answer must have a form, the model does not think first: it would be no part of the form."""
    tokenizer, template = order.built.tokenizer, order.built.template
    order.room.check_conversation(conversation)
    form = answer_form(order.built, call.params.constraint, conversation, call.calls)
    thinks = None if call.think is None else bool(call.think)
    conversation = prompted(template, conversation, formed=form is not None, thinks=thinks)
    prompt = chat_prompt(order, conversation, Scope(salt=call.salt))
    tokens = prompt.before(form)
    reading = ToolReading.after(tokenizer, template, conversation, tokens, call.calls)
    return _Prompt(tokens, replace(call.params, constraint=form), prompt, reading)


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
        asked = {"/": self.running, "/api/tags": self.tags, "/api/ps": self.ps, "/api/version": self.version}
        return [
            *(Route(path, endpoint, methods=["POST"]) for path, endpoint in self._generating.items()),
            *(
                Route(path, DialectEndpoint(OLLAMA, handler), methods=["GET"])
                for path, handler in asked.items()
            ),
            Route("/api/show", DialectEndpoint(OLLAMA, self.show), methods=["POST"]),
        ]

    async def running(self, _request: HttpRequest) -> Response:
        """Its clients ask with GET or HEAD whether anyone is there."""
        return PlainTextResponse("Ollama is running")

    async def version(self, _request: HttpRequest) -> Response:
        return JSONResponse({"version": __version__})

    async def tags(self, _request: HttpRequest) -> Response:
        return JSONResponse({"models": [{**self._model(), "modified_at": self._created()}]})

    async def ps(self, _request: HttpRequest) -> Response:
        context = self._slot.get().facts.max_context
        return JSONResponse({"models": [{**self._model(), "size_vram": 0, "context_length": context}]})

    async def show(self, request: HttpRequest) -> Response:
        fields = read_json(await read_limited(request, self._max_body_bytes, lambda: self._slot.stopping))
        check_ollama_model(_asked(fields), self._slot.name)
        return JSONResponse(self._shown())

    def _shown(self) -> Json:
        facts, template = self._slot.get().facts, self._slot.get().template
        settings = {"num_ctx": facts.max_context, **asdict(facts.sampling)}
        settings["repeat_penalty"] = settings.pop("repetition_penalty")
        return {
            "details": _details(),
            "license": "",
            "modelfile": "",
            "template": template.source,
            "parameters": "\n".join(f"{name} {value}" for name, value in settings.items()),
            "model_info": {
                "general.architecture": "sapwood",
                "general.basename": self._slot.name,
                "sapwood.context_length": facts.max_context,
                "sapwood.vocab_size": facts.vocab_size,
            },
            "capabilities": ["completion", "tools", *(["thinking"] if template.thinks else [])],
            "modified_at": self._created(),
        }

    def _model(self) -> Json:
        """What is known of the model; how large its file is, is not."""
        name = self._slot.name
        tagged = name if ":" in name else name + LATEST
        digest = self._slot.get().facts.fingerprint
        return {"name": tagged, "model": tagged, "digest": digest, "details": _details()}

    def _created(self) -> str:
        return datetime.fromtimestamp(self._slot.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _asked(fields: Mapping[str, Any]) -> str:
    """The model's name, also under the field's older name."""
    name = fields.get("model") or fields.get("name")
    if not isinstance(name, str):
        raise RequestError("'model' is required", param="model", code="missing_required_parameter")
    return name


def _details() -> Json:
    """Its clients expect them all; none is known here."""
    unknown = ("parent_model", "format", "family", "parameter_size", "quantization_level")
    return {**dict.fromkeys(unknown, ""), "families": []}
