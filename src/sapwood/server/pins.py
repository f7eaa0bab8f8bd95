"""Routes that keep prompts in the cache, whatever else is asked: pin, list, unpin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from sapwood.chat import Conversation, Json, encode_conversation, encode_prompt, parse_pin, read_json
from sapwood.engine import Pin, PinReport
from sapwood.errors import RequestError
from sapwood.server.body import read_limited
from sapwood.server.caller import Caller, caller_of
from sapwood.server.disconnect import unless_gone
from sapwood.server.log import RECORD_KEY, Record
from sapwood.server.openai_routes import check_model
from sapwood.server.slot import Slot
from sapwood.types import Request, SamplingParams

PATH = "/v1/cache/pins"


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A pin, and the request that computes what it is to hold."""

    id: str
    request: Request
    field: str
    """Of the body, that gave the prompt."""


class PinRoutes:
    """The handlers, bound to one slot."""

    def __init__(self, slot: Slot, max_body_bytes: int) -> None:
        self._slot, self._max_body_bytes = slot, max_body_bytes

    def routes(self) -> list[Route]:
        return [
            Route(PATH, _PinEndpoint(self._slot, self._max_body_bytes), methods=["POST"]),
            Route(PATH, self.listed, methods=["GET"]),
            Route(f"{PATH}/{{id}}", self.unpin, methods=["DELETE"]),
        ]

    async def listed(self, _request: HttpRequest) -> Response:
        report = await self._slot.get().loop.pins()
        return JSONResponse({"pins": [_pin_json(pin) for pin in report.pins], **_totals(report)})

    async def unpin(self, request: HttpRequest) -> Response:
        report = await self._slot.get().loop.unpin(request.path_params["id"])
        return JSONResponse({**_pin_json(report.pins[0]), **_totals(report)})


class _PinEndpoint:
    """Pins a prompt. A client that leaves meanwhile has pinned nothing."""

    def __init__(self, slot: Slot, max_body_bytes: int) -> None:
        self._slot, self._max_body_bytes = slot, max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._slot.get()
        body = await read_limited(
            HttpRequest(scope, receive), self._max_body_bytes, lambda: self._slot.stopping
        )

        async def work() -> None:
            answer = JSONResponse(await self._pin(body, scope[RECORD_KEY], caller_of(scope)))
            await answer(scope, receive, send)

        await unless_gone(receive, work())

    async def _pin(self, body: bytes, record: Record, caller: Caller) -> Json:
        loop = self._slot.get().loop
        wanted = await run_in_threadpool(self._wanted, body, record.id, caller)
        record.prompt_tokens = len(wanted.request.prompt)
        with _said_of(wanted.field):
            report = await loop.pin(wanted.id, wanted.request)
        return {**_pin_json(report.pins[0]), **_totals(report)}

    def _wanted(self, body: bytes, own_id: str, caller: Caller) -> _Wanted:
        """Parses, encodes and checks. Raises RequestError."""
        built, room = self._slot.get(), self._slot.room
        call = parse_pin(read_json(body), vocab_size=built.facts.vocab_size)
        check_model(call.model, self._slot.name)
        if isinstance(call.prompt, Conversation):
            room.check_conversation(call.prompt)
            tokens = encode_conversation(built.tokenizer, built.template, call.prompt)
        else:
            room.check_prompts([call.prompt])
            tokens = encode_prompt(built.tokenizer, call.prompt, start=call.add_special_tokens)
        params = SamplingParams(max_tokens=0)
        scope = replace(call.scope, tenant=caller.tenant)
        request = Request(id=f"pin-{own_id}", prompt=tokens, params=params, scope=scope)
        wanted = _Wanted(call.id or f"pin-{own_id}", request, call.field)
        with _said_of(wanted.field):
            built.loop.check_pin(request)
        return wanted


@contextmanager
def _said_of(field: str) -> Iterator[None]:
    """What the engine finds wrong with the prompt is said of the field that gave it."""
    try:
        yield
    except RequestError as error:
        if error.param == "prompt":
            error.param = field
        raise


def _pin_json(pin: Pin) -> Json:
    owner = {"tenant": pin.namespace.tenant} if pin.namespace.tenant else {}
    return {"id": pin.id, "prompt_tokens": pin.prompt_tokens, "pinned_tokens": pin.pinned_tokens, **owner}


def _totals(report: PinReport) -> Json:
    return {"budget_tokens": report.budget_tokens, "total_pinned_tokens": report.pinned_tokens}
