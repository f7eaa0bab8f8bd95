"""Routes that tell about the server rather than generate: health, metrics, models, tokens, flush."""

from __future__ import annotations

from dataclasses import asdict, is_dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sapwood import __version__
from sapwood.chat import Json, check_tokens, clean_text, parse_conversation, read_json, shown
from sapwood.config import ServerConfig
from sapwood.errors import RequestError
from sapwood.server.body import read_limited
from sapwood.server.metrics import CONTENT_TYPE, metrics_text
from sapwood.server.openai_routes import check_model
from sapwood.server.prompts import encode_conversation, encode_prompt
from sapwood.server.slot import Slot


class StatusRoutes:
    """The handlers, bound to one slot."""

    def __init__(self, slot: Slot, config: ServerConfig) -> None:
        self._slot, self._config = slot, config

    def routes(self) -> list[Route]:
        return [
            Route("/health", self.health, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
            Route("/v1/server", self.server, methods=["GET"]),
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
            metrics_text(self._slot.name, built.loop.stats), headers={"content-type": CONTENT_TYPE}
        )

    async def server(self, _request: Request) -> Response:
        facts = self._slot.get().facts
        fields: Json = asdict(facts) if is_dataclass(facts) and not isinstance(facts, type) else {}
        capacity_tokens = facts.capacity_pages * facts.page_size
        described = {
            **fields,
            "model": self._slot.name,
            "version": __version__,
            "ledger": "physical",
            "capacity_tokens": capacity_tokens,
            "capacity_bytes": capacity_tokens * facts.kv_bytes_per_token,
            "max_body_bytes": self._config.max_body_bytes,
        }
        return JSONResponse(described)

    async def models(self, _request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._model_json()]})

    async def model(self, request: Request) -> Response:
        self._slot.get()
        check_model(request.path_params["id"], self._slot.name)
        return JSONResponse(self._model_json())

    async def flush(self, _request: Request) -> Response:
        report = await self._slot.get().loop.flush()
        reason = "running requests still read them; they match no more" if report.kept_tokens else None
        return JSONResponse(
            {"flushed_tokens": report.flushed_tokens, "kept_tokens": report.kept_tokens, "reason": reason}
        )

    async def tokenize(self, request: Request) -> Response:
        body = await read_limited(request, self._config.max_body_bytes)
        return JSONResponse(await run_in_threadpool(self._tokenized, body))

    async def detokenize(self, request: Request) -> Response:
        body = await read_limited(request, self._config.max_body_bytes)
        return JSONResponse(await run_in_threadpool(self._detokenized, body))

    def _model_json(self) -> Json:
        return {
            "id": self._slot.name,
            "object": "model",
            "created": self._slot.created,
            "owned_by": "sapwood",
            "max_model_len": self._slot.get().facts.max_context,
        }

    def _tokenized(self, body: bytes) -> Json:
        built, fields = self._slot.get(), read_json(body)
        check_model(_text(fields, "model", None), self._slot.name)
        if "messages" in fields:
            tokens = encode_conversation(built, parse_conversation(fields))
        else:
            special = fields.get("add_special_tokens", True)
            if not isinstance(special, bool):
                raise RequestError(
                    f"'add_special_tokens' is {shown(special)}; it must be true or false",
                    param="add_special_tokens",
                )
            tokens = encode_prompt(built, _text(fields, "prompt", ...) or "", special=special)
        return {"tokens": list(tokens), "count": len(tokens), "max_model_len": built.facts.max_context}

    def _detokenized(self, body: bytes) -> Json:
        built, fields = self._slot.get(), read_json(body)
        check_model(_text(fields, "model", None), self._slot.name)
        tokens = fields.get("tokens")
        if not isinstance(tokens, list):
            raise RequestError(f"'tokens' is {shown(tokens)}; it must be a list of token ids", param="tokens")
        return {"prompt": built.tokenizer.decode(check_tokens(tokens, "tokens", built.facts.vocab_size))}


def _text(fields: Any, name: str, default: object) -> str | None:
    """The text at `name`; `default` None makes it optional."""
    value = fields.get(name)
    if value is None and default is None:
        return None
    if not isinstance(value, str):
        raise RequestError(f"{name!r} is {shown(value)}; it must be a string", param=name)
    try:
        return clean_text(value)
    except ValueError as error:
        raise RequestError(f"{name!r} {error}", param=name) from None
