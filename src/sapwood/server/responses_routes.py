"""OpenAI's responses: made, asked for again, gone on from, deleted, counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sapwood.chat import (
    Conversation,
    Json,
    Render,
    ToolReading,
    read_json,
)
from sapwood.chat.responses import Recall, ResponseCall, parse_response, parse_response_count
from sapwood.chat.responses_render import ResponseAnswer, ResponseShape, ResponseStream
from sapwood.chat.sse import encode_named_event
from sapwood.chat.thinking import prompted
from sapwood.contract import OPENAI_BREAKPOINTS
from sapwood.errors import ContextLengthError, NotFoundError, RequestError
from sapwood.server.body import read_limited
from sapwood.server.caller import Caller, caller_of
from sapwood.server.chat_prompt import ChatPrompt, answer_form, chat_prompt, chat_tokens
from sapwood.server.explain import Explanations
from sapwood.server.generate import GenerateEndpoint, Job, Order
from sapwood.server.native import fitted
from sapwood.server.openai_routes import check_model
from sapwood.server.promises import retaining
from sapwood.server.response_store import ResponseStore, StoredResponse, size_of
from sapwood.server.responses_contract import settlement
from sapwood.server.slot import Slot
from sapwood.server.truncation import kept_breakpoints, without_oldest
from sapwood.server.wire import OPENAI
from sapwood.types import Request

PAGE = 20
"""Items in a page of a list, if nothing is said."""
MOST_IN_PAGE = 100


RESPONSES = replace(
    OPENAI, content_type=b"text/event-stream; charset=utf-8", frame=encode_named_event, end=b""
)


class ResponsesRoutes:
    """The handlers, bound to one slot, and what they remember."""

    wire = RESPONSES

    def __init__(self, slot: Slot, explanations: Explanations, max_body_bytes: int) -> None:
        self._slot, self._max_body_bytes = slot, max_body_bytes
        self._store = ResponseStore()
        self._create = GenerateEndpoint(self.prepare, slot, explanations, max_body_bytes, RESPONSES)

    def routes(self) -> list[Route]:
        one = "/v1/responses/{id}"
        return [
            Route("/v1/responses", self._create, methods=["POST"]),
            Route("/v1/responses/input_tokens", self.count, methods=["POST"]),
            Route(one, self.retrieve, methods=["GET"]),
            Route(one, self.delete, methods=["DELETE"]),
            Route(f"{one}/cancel", self.cancel, methods=["POST"]),
            Route(f"{one}/input_items", self.input_items, methods=["GET"]),
        ]

    def prepare(self, order: Order) -> Job:
        """`POST /v1/responses`."""
        built, tenant = order.built, order.caller.tenant
        fields = read_json(order.body)
        call = parse_response(
            fields,
            stem=order.id,
            recall=self._recall(tenant),
            usual_ttl=OPENAI_BREAKPOINTS.default_ttl,
            vocab_size=built.facts.vocab_size,
            defaults=built.facts.sampling,
        )
        check_model(call.options.model, order.served_name)
        id = order.head("resp").id
        ready = _readied(order, call, id)
        call, request = ready.call, ready.request

        items_size = size_of(call.items)  # Here, for it takes a while and nothing waits for this thread.

        def keep(response: Json) -> None:
            if call.store:
                self._store.keep(tenant, StoredResponse(response, call.items, items_size))

        settle = settlement(order, call, fields, request, ready.prompt.replayed)
        shape = ResponseShape(
            id=id,
            created=order.created,
            model=order.served_name,
            stem=order.id,
            echo=call.echo,
            settle=settle,
            keep=keep,
            reading=ready.reading,
            scored=call.options.params.logprobs is not None,
            seal=call.sealed,
            prewarm=call.prewarm,
        )
        request = retaining(order, request, None if settle.promise is None else settle.promise.plan)
        unread = built.template.unread(call.conversation.template_kwargs)
        ignored = (*call.options.ignored, *(f"chat_template_kwargs.{name}" for name in unread))
        place = ready.prompt.place
        if not call.options.stream:
            answer = ready.remembered(ResponseAnswer(shape, built.tokenizer))
            return Job(id, (request,), answer, False, place, ignored)
        stream = ResponseStream(shape, built.tokenizer)
        return Job(id, (request,), ready.remembered(stream), True, place, ignored, stream.fail)

    async def count(self, request: HttpRequest) -> Response:
        """Renders and encodes as for an answer; nothing reaches the engine or its cache."""
        body = await read_limited(request, self._max_body_bytes, lambda: self._slot.stopping)
        counted = await run_in_threadpool(self._counted, body, caller_of(request.scope))
        return JSONResponse({"object": "response.input_tokens", "input_tokens": counted})

    async def retrieve(self, request: HttpRequest) -> Response:
        if request.query_params.get("stream") in ("true", "1"):
            raise RequestError(
                "'stream' is true; a response that is complete is not streamed again",
                param="stream",
                code="unsupported_parameter",
                hint="leave stream out",
            )
        return JSONResponse(self._stored(request).response)

    async def delete(self, request: HttpRequest) -> Response:
        id = request.path_params["id"]
        self._store.delete(caller_of(request.scope).tenant, id)
        return JSONResponse({"id": id, "object": "response", "deleted": True})

    async def cancel(self, request: HttpRequest) -> Response:
        self._stored(request)
        raise RequestError(
            "only a response made with 'background' can be cancelled, and there are none here",
            param="response_id",
            hint="close the connection of the request to stop it",
        )

    async def input_items(self, request: HttpRequest) -> Response:
        return JSONResponse(_page(self._stored(request).items, request.query_params))

    def _stored(self, request: HttpRequest) -> StoredResponse:
        return self._store.find(caller_of(request.scope).tenant, request.path_params["id"])

    def _recall(self, tenant: str) -> Recall:
        def recall(id: str) -> Sequence[Json]:
            try:
                return self._store.find(tenant, id).history
            except NotFoundError as error:
                raise RequestError(
                    error.message,
                    param="previous_response_id",
                    code="previous_response_not_found",
                    hint=error.hint,
                ) from None

        return recall

    def _counted(self, body: bytes, caller: Caller) -> int:
        built = self._slot.get()
        call = parse_response_count(read_json(body), recall=self._recall(caller.tenant))
        check_model(call.model, self._slot.name)
        thinks = None if call.thinks else False
        conversation = prompted(built.template, call.conversation, formed=False, thinks=thinks)
        with _told_of_input():
            self._slot.room.check_conversation(conversation, "input")
            return len(chat_tokens(self._slot, caller, conversation))


@dataclass(frozen=True, slots=True)
class _Ready:
    """What the engine is asked, and how its answer is read."""

    call: ResponseCall
    prompt: ChatPrompt
    request: Request
    reading: ToolReading | None

    def remembered(self, render: Render) -> Render:
        return render if self.call.prewarm else self.prompt.remembered(render, self.request, self.reading)


def _readied(order: Order, call: ResponseCall, id: str) -> _Ready:
    built, params = order.built, call.options.params
    if not call.prewarm:
        form = answer_form(built, params.constraint, call.conversation, call.tool_use)
        params = replace(params, constraint=form)
    formed, thinks = params.constraint is not None, None if call.thinks else False
    conversation = prompted(built.template, call.conversation, formed=formed, thinks=thinks)
    call = replace(call, conversation=conversation, options=replace(call.options, params=params))
    with _told_of_input():
        if call.truncates:
            call = _truncated(order, call, id)
        return _asked(order, call, id)


def _asked(order: Order, call: ResponseCall, id: str) -> _Ready:
    """Raises RequestError for what the engine would refuse."""
    built, options, conversation = order.built, call.options, call.conversation
    order.room.check_conversation(conversation, "input")
    prompt = chat_prompt(order, conversation, options.scope)
    tokens = prompt.before(options.params.constraint)
    request = Request(id, tokens, options.params, options.scope, options.priority)
    request = fitted(order, request, cut=True, param="input")
    reading = ToolReading.after(built.tokenizer, built.template, conversation, tokens, call.tool_use)
    return _Ready(call, prompt, request, reading)


def _truncated(order: Order, call: ResponseCall, id: str) -> ResponseCall:
    def fits(conversation: Conversation) -> bool:
        try:
            _asked(order, replace(call, conversation=conversation), id)
        except ContextLengthError:
            return False
        return True

    before = call.conversation
    conversation = without_oldest(before, fits)
    points = kept_breakpoints(call.cache.breakpoints, before, conversation)
    return replace(call, conversation=conversation, cache=replace(call.cache, breakpoints=points))


@contextmanager
def _told_of_input() -> Iterator[None]:
    """Errors of a conversation say `input`, which is its name here."""
    try:
        yield
    except ContextLengthError as error:
        raise ContextLengthError(
            error.message, param="input", hint="shorten the input, or set truncation to auto"
        ) from None
    except RequestError as error:
        if error.param != "messages":
            raise
        raise RequestError(error.message, param="input", code=error.code, hint=error.hint) from None


def _page(items: Sequence[Json], query: Mapping[str, Any] | QueryParams) -> Json:
    """Items from the newest on, unless `order` is `asc`; those after `after`, at most `limit`. Raises RequestError."""
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise RequestError(f"'order' is {order[:40]!r}; it must be 'asc' or 'desc'", param="order")
    listed = list(items) if order == "asc" else list(reversed(items))
    after = query.get("after")
    if after is not None:
        places = [i for i, item in enumerate(listed) if item["id"] == after]
        if not places:
            raise RequestError(f"'after' is {after[:100]!r}; there is no such item", param="after")
        listed = listed[places[0] + 1 :]
    page = listed[: _limit(query.get("limit"))]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(page) < len(listed),
    }


def _limit(text: str | None) -> int:
    if text is None:
        return PAGE
    if not (text.isascii() and text.isdecimal() and len(text) <= 3 and 1 <= int(text) <= MOST_IN_PAGE):
        raise RequestError(
            f"'limit' is {text[:40]!r}; it must be a whole number from 1 to {MOST_IN_PAGE}", param="limit"
        )
    return int(text)
