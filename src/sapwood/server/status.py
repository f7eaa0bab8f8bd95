"""Routes that tell about the server rather than generate: health, metrics, models, tokens, flush, explanations."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sapwood import __version__
from sapwood.chat import (
    Json,
    at,
    check_tokens,
    clean_text,
    encode_prompt,
    parse_conversation,
    read_json,
    shown,
)
from sapwood.config import ServerConfig
from sapwood.errors import RequestError
from sapwood.server.body import read_limited
from sapwood.server.caller import Caller, caller_of
from sapwood.server.chat_prompt import chat_tokens
from sapwood.server.explain import Explanations
from sapwood.server.gemini_models import gemini_model
from sapwood.server.gemini_wire import GEMINI, speaks_gemini
from sapwood.server.metrics import CONTENT_TYPE, metrics_text
from sapwood.server.openai_routes import check_model
from sapwood.server.slot import Slot
from sapwood.server.tenants import Tenants
from sapwood.server.wire import WIRE_KEY


class StatusRoutes:
    """The handlers, bound to one slot."""

    def __init__(
        self, slot: Slot, explanations: Explanations, config: ServerConfig, tenants: Tenants | None
    ) -> None:
        self._slot, self._explanations, self._config = slot, explanations, config
        self._tenant_names = None if tenants is None else tenants.names

    def routes(self) -> list[Route]:
        return [
            Route("/health", self.health, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
            Route("/v1/server", self.server, methods=["GET"]),
            Route("/v1/cache/curve", self.curve, methods=["GET"]),
            Route("/v1/requests/{id}/cache", self.explanation, methods=["GET"]),
            Route("/v1/models", self.models, methods=["GET"]),
            Route("/v1/models/{id:path}", self.model, methods=["GET"]),
            Route("/flush_cache", self.flush, methods=["POST"]),
            Route("/tokenize", self.tokenize, methods=["POST"]),
            Route("/detokenize", self.detokenize, methods=["POST"]),
        ]

    async def health(self, _request: Request) -> Response:
        status = self._slot.status
        return JSONResponse({"status": status}, status_code=200 if status == "ok" else 503)

    async def metrics(self, _request: Request) -> Response:
        built = self._slot.get()
        return Response(
            metrics_text(self._slot.name, built.loop.stats, self._tenant_names, built.loop.lost_lines),
            headers={"content-type": CONTENT_TYPE},
        )

    async def server(self, request: Request) -> Response:
        built = self._slot.get()
        facts, stats = built.facts, built.loop.stats()
        capacity_tokens = facts.capacity_pages * facts.page_size
        described = {
            "model": self._slot.name,
            "fingerprint": facts.fingerprint,
            "exact": facts.exact,
            "ops": facts.ops,
            "compute": facts.compute,
            "version": __version__,
            "ledger": self._config.ledger,
            "ledgers": self._slot.ledgers.names(),
            "policies": dict(facts.policies),
            "vocab_size": facts.vocab_size,
            "max_context": facts.max_context,
            "page_size": facts.page_size,
            "capacity_pages": facts.capacity_pages,
            "capacity_tokens": capacity_tokens,
            "capacity_bytes": capacity_tokens * facts.kv_bytes_per_token,
            "kv_bytes_per_token": facts.kv_bytes_per_token,
            "pin_budget_tokens": stats.pin_budget_tokens,
            "score_budget_bytes": stats.score_budget_bytes,
            "max_body_bytes": self._config.max_body_bytes,
            "notices": list(facts.notices),
        }
        if caller_of(request.scope).operator:  # The rest does not change, so it tells nothing of others.
            described["pinned_tokens"] = stats.pinned_tokens
        return JSONResponse(described)

    async def curve(self, _request: Request) -> Response:
        points = self._slot.get().loop.stats().curve
        return JSONResponse(
            [{"capacity_tokens": point.capacity_tokens, "hit_rate": point.hit_rate} for point in points]
        )

    async def explanation(self, request: Request) -> Response:
        self._slot.get()
        return JSONResponse(
            await self._explanations.settled(request.path_params["id"], caller_of(request.scope))
        )

    async def models(self, request: Request) -> Response:
        """For OpenAI's SDK, Anthropic's and Gemini's: each reads its own fields."""
        _answer_in_its_dialect(request)
        name = self._slot.name
        return JSONResponse(
            {
                "object": "list",
                "data": [self._model_json()],
                "models": [gemini_model(name, self._slot.get().facts)],
                "has_more": False,
                "first_id": name,
                "last_id": name,
            }
        )

    async def model(self, request: Request) -> Response:
        _answer_in_its_dialect(request)
        self._slot.get()
        check_model(request.path_params["id"], self._slot.name)
        return JSONResponse(self._model_json())

    async def flush(self, _request: Request) -> Response:
        report = await self._slot.get().loop.flush()
        why = "running requests still read them, and they match no more, or they are public prefixes"
        reason = why if report.kept_tokens else None
        return JSONResponse(
            {"flushed_tokens": report.flushed_tokens, "kept_tokens": report.kept_tokens, "reason": reason}
        )

    async def tokenize(self, request: Request) -> Response:
        body, caller = await self._body(request), caller_of(request.scope)
        return JSONResponse(await run_in_threadpool(self._tokenized, body, caller))

    async def detokenize(self, request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self._detokenized, await self._body(request)))

    async def _body(self, request: Request) -> bytes:
        return await read_limited(request, self._config.max_body_bytes, lambda: self._slot.stopping)

    def _model_json(self) -> Json:
        return {
            **gemini_model(self._slot.name, self._slot.get().facts),
            "id": self._slot.name,
            "object": "model",
            "created": self._slot.created,
            "owned_by": "sapwood",
            "max_model_len": self._slot.get().facts.max_context,
            "type": "model",
            "display_name": self._slot.name,
            "created_at": datetime.fromtimestamp(self._slot.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    def _tokenized(self, body: bytes, caller: Caller) -> Json:
        built, fields = self._slot.get(), read_json(body)
        check_model(_optional_text(fields, "model"), self._slot.name)
        if fields.get("messages") is not None:
            conversation = parse_conversation(fields)
            self._slot.room.check_conversation(conversation)
            tokens = chat_tokens(self._slot, caller, conversation)
        else:
            special = _flag(fields, "add_special_tokens", default=True)
            prompt = _required_text(fields, "prompt")
            self._slot.room.check(prompt, "prompt")
            tokens = encode_prompt(built.tokenizer, prompt, start=special)
        told = {"tokens": list(tokens), "count": len(tokens), "max_model_len": built.facts.max_context}
        if _flag(fields, "return_token_strs", default=False):
            told["token_strs"] = [built.tokenizer.token_text(token) for token in tokens]
        return told

    def _detokenized(self, body: bytes) -> Json:
        built, fields = self._slot.get(), read_json(body)
        check_model(_optional_text(fields, "model"), self._slot.name)
        tokens = _required(fields, "tokens")
        if not isinstance(tokens, list):
            raise RequestError(f"'tokens' is {shown(tokens)}; it must be a list of token ids", param="tokens")
        self._slot.room.check_tokens(len(tokens), "tokens")
        ids = check_tokens(tokens, "tokens", built.facts.vocab_size)
        return {"prompt": built.tokenizer.decode(ids, skip_special=False)}


def _answer_in_its_dialect(request: Request) -> None:
    """Of a route that several dialects have: errors are told as the client's SDK reads them."""
    if speaks_gemini(request.scope):
        request.scope[WIRE_KEY] = GEMINI


def _flag(fields: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = default if fields.get(name) is None else fields[name]
    if not isinstance(value, bool):
        raise RequestError(f"{name!r} is {shown(value)}; it must be true or false", param=name)
    return value


def _optional_text(fields: Mapping[str, Any], name: str) -> str | None:
    return None if fields.get(name) is None else _required_text(fields, name)


def _required(fields: Mapping[str, Any], name: str) -> object:
    if fields.get(name) is None:
        raise RequestError(f"{name!r} is required", param=name, code="missing_required_parameter")
    return fields[name]


def _required_text(fields: Mapping[str, Any], name: str) -> str:
    value = _required(fields, name)
    if not isinstance(value, str):
        raise RequestError(f"{name!r} is {shown(value)}; it must be a string", param=name)
    return at(name, clean_text, value)
