"""SGLang's native routes: `/generate`, and what its users and benchmarks ask of a server."""

from __future__ import annotations

import time

from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from sapwood import __version__
from sapwood.chat import (
    DONE,
    KEEP_ALIVE,
    Json,
    Place,
    Render,
    encode_event,
    encode_prompt,
    place_in_prompt,
    read_json,
)
from sapwood.chat.sglang import GenerateCall, GeneratePrompt, parse_generate
from sapwood.chat.sglang_render import GenerateAnswer, GenerateShape, GenerateStream
from sapwood.errors import RequestError
from sapwood.server.errors import error_json, status_of
from sapwood.server.explain import Explanations
from sapwood.server.generate import GenerateEndpoint, Job, Order
from sapwood.server.native import DialectEndpoint, fitted
from sapwood.server.slot import Slot
from sapwood.server.wire import Wire
from sapwood.types import Request, Scope


def _error(error: Exception, _request_id: str) -> Json:
    told = error_json(error)["error"]
    return {"error": {"message": told["message"], "type": told["type"], "code": status_of(error)}}


SGLANG = Wire(b"text/event-stream", encode_event, DONE, KEEP_ALIVE, _error)


def prepare_generate(order: Order) -> Job:
    """`POST /generate`."""
    built = order.built
    call = parse_generate(read_json(order.body), vocab_size=built.facts.vocab_size)
    order.room.check_prompts([each.prompt for each in call.prompts])
    id = order.head("generate").id
    requests = _requests(order, id, call)
    shapes = [
        GenerateShape(each.rid or request.id, request.prompt, request.params, each.scored_from)
        for each, request in zip(call.prompts, requests, strict=True)
    ]
    make = GenerateStream if call.stream else GenerateAnswer
    render: Render = make(built.tokenizer, shapes, time.monotonic, batch=call.batch, with_text=call.with_text)

    def place(prompt: int, token: int) -> Place:
        return place_in_prompt(built.tokenizer, requests[prompt].prompt, token)

    return Job(id, requests, render, call.stream, place, call.ignored)


def _requests(order: Order, id: str, call: GenerateCall) -> tuple[Request, ...]:
    """All checked before the first is submitted."""
    several = len(call.prompts) > 1
    return tuple(
        _request(order, f"{id}-{i}" if several else id, each, call.priority)
        for i, each in enumerate(call.prompts)
    )


def _request(order: Order, id: str, asked: GeneratePrompt, priority: int) -> Request:
    tokens = encode_prompt(order.built.tokenizer, asked.prompt)
    if asked.scored_from is not None and asked.scored_from >= len(tokens):
        raise RequestError(
            f"'logprob_start_len' is {asked.scored_from}; it must be below the prompt's {len(tokens)} tokens",
            param="logprob_start_len",
        )
    scope = Scope(tenant=order.caller.tenant, salt=asked.salt)
    request = Request(id=id, prompt=tokens, params=asked.params, scope=scope, priority=priority)
    return fitted(order, request, cut=not asked.limited)


class SglangRoutes:
    """The handlers, bound to one slot."""

    def __init__(self, slot: Slot, explanations: Explanations, max_body_bytes: int) -> None:
        self._slot = slot
        self._generate = GenerateEndpoint(prepare_generate, slot, explanations, max_body_bytes, SGLANG)

    def routes(self) -> list[Route]:
        plain = {
            "/flush_cache": self.flush,
            "/server_info": self.server_info,
            "/get_server_info": self.server_info,
            "/model_info": self.model_info,
            "/get_model_info": self.model_info,
        }
        return [
            Route("/generate", self._generate, methods=["POST"]),
            *(
                Route(path, DialectEndpoint(SGLANG, handler), methods=["GET"])
                for path, handler in plain.items()
            ),
            *(
                Route(path, DialectEndpoint(SGLANG, self.session), methods=["POST"])
                for path in ("/open_session", "/close_session")
            ),
        ]

    async def flush(self, request: HttpRequest) -> Response:
        """SGLang's text; `POST` answers in numbers. `HEAD`, which the router adds to `GET`, changes nothing."""
        if request.method == "HEAD":
            raise HTTPException(405, headers={"allow": "GET, POST"})
        report = await self._slot.get().loop.flush()
        kept = (
            f"{report.kept_tokens} tokens are kept: of running requests until these end (they match no more), "
            "or of public prefixes.\n"
        )
        return PlainTextResponse("Cache flushed.\n" + (kept if report.kept_tokens else ""))

    async def session(self, _request: HttpRequest) -> Response:
        raise RequestError(
            "there are no sessions here: send the whole prompt, and what of it is cached is reused",
            code="unsupported_endpoint",
        )

    async def server_info(self, _request: HttpRequest) -> Response:
        """SGLang's start settings and state, and vLLM's configuration, as far as each has a meaning here."""
        built = self._slot.get()
        facts, stats = built.facts, built.loop.stats()
        reuse = facts.policies.get("prefix_index") != "none"
        used = stats.pages.leased + stats.pages.private
        state = {
            "num_running_reqs": stats.running,
            "num_waiting_reqs": stats.waiting,
            "max_total_num_tokens": facts.capacity_pages * facts.page_size,
            "token_usage": used / facts.capacity_pages,
        }
        vllm = {
            "model_config": {"model": self._slot.name, "max_model_len": facts.max_context},
            "cache_config": {
                "block_size": facts.page_size,
                "num_gpu_blocks": facts.capacity_pages,
                "enable_prefix_caching": reuse,
            },
        }
        return JSONResponse(
            {
                "model_path": self._slot.name,
                "served_model_name": self._slot.name,
                "context_length": facts.max_context,
                "page_size": facts.page_size,
                "schedule_policy": facts.policies.get("schedule"),
                "radix_eviction_policy": facts.policies.get("eviction"),
                "disable_radix_cache": not reuse,
                "max_total_num_tokens": state["max_total_num_tokens"],
                "internal_states": [state],
                "version": __version__,
                "vllm_config": vllm,
            }
        )

    async def model_info(self, _request: HttpRequest) -> Response:
        self._slot.get()
        return JSONResponse(
            {
                "model_path": self._slot.name,
                "tokenizer_path": self._slot.name,
                "is_generation": True,
                "weight_version": "default",
            }
        )
