"""The Anthropic dialect's routes: messages, with what its cache rules promise, and the counting of tokens."""

from __future__ import annotations

from dataclasses import replace

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sapwood.chat import (
    Json,
    Place,
    Render,
    encode_conversation,
    encode_event,
    place_in_conversation,
    read_json,
)
from sapwood.chat.anthropic import parse_count, parse_messages
from sapwood.chat.anthropic_render import MessageAnswer, MessageShape, MessageStream
from sapwood.chat.forced_calls import constrained
from sapwood.chat.tool_answer import ToolReading
from sapwood.chat.tools import ToolUse
from sapwood.errors import ContextLengthError, OutOfPagesError, UnavailableError
from sapwood.server.anthropic_contract import by_contract, physically
from sapwood.server.body import read_limited
from sapwood.server.errors import error_json, status_of
from sapwood.server.explain import Explanations
from sapwood.server.generate import GenerateEndpoint, Job, Order
from sapwood.server.openai_routes import check_model
from sapwood.server.slot import Slot
from sapwood.server.wire import WIRE_KEY, Wire
from sapwood.types import Request
from sapwood.types import Scope as CacheScope

_OVERLOADED = 529


def _frame(event: Json) -> bytes:
    return f"event: {event['type']}\n".encode() + encode_event(event)


def _status(error: Exception) -> int:
    return _OVERLOADED if isinstance(error, UnavailableError | OutOfPagesError) else status_of(error)


def _error(error: Exception, request_id: str) -> Json:
    match _status(error):
        case 401:
            kind = "authentication_error"
        case 403:
            kind = "permission_error"
        case 404:
            kind = "not_found_error"
        case 413:
            kind = "request_too_large"
        case 429:
            kind = "rate_limit_error"
        case 529:
            kind = "overloaded_error"
        case status:
            kind = "invalid_request_error" if status < 500 else "api_error"
    message = error_json(error)["error"]["message"]
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id}


ANTHROPIC = Wire(b"text/event-stream; charset=utf-8", _frame, b"", _frame({"type": "ping"}), _error, _status)


class AnthropicRoutes:
    """The handlers, bound to one slot."""

    wire = ANTHROPIC

    def __init__(self, slot: Slot, explanations: Explanations, max_body_bytes: int) -> None:
        self._slot, self._max_body_bytes = slot, max_body_bytes
        self._messages = GenerateEndpoint(prepare_message, slot, explanations, max_body_bytes, ANTHROPIC)

    def routes(self) -> list[Route]:
        return [
            Route("/v1/messages", self._messages, methods=["POST"]),
            Route("/v1/messages/count_tokens", self.count_tokens, methods=["POST"]),
            Route("/api/hello", self.hello, methods=["GET"]),
        ]

    async def hello(self, _request: HttpRequest) -> Response:
        """Claude Code asks with HEAD whether anyone is there."""
        return JSONResponse({"message": "hello"})

    async def count_tokens(self, request: HttpRequest) -> Response:
        request.scope[WIRE_KEY] = ANTHROPIC
        body = await read_limited(request, self._max_body_bytes, lambda: self._slot.stopping)
        return JSONResponse({"input_tokens": await run_in_threadpool(self._counted, body)})

    def _counted(self, body: bytes) -> int:
        """Renders and encodes as for an answer; nothing reaches the engine or its cache."""
        built = self._slot.get()
        call = parse_count(read_json(body))
        check_model(call.model, self._slot.name)
        self._slot.room.check_conversation(call.conversation)
        return len(encode_conversation(built.tokenizer, built.template, call.conversation))


def prepare_message(order: Order) -> Job:
    """`POST /v1/messages`."""
    built, facts = order.built, order.built.facts
    call = parse_messages(read_json(order.body), vocab_size=facts.vocab_size, defaults=facts.sampling)
    options, conversation = call.options, call.conversation
    check_model(options.model, order.served_name)
    order.room.check_conversation(conversation)
    tokens = encode_conversation(built.tokenizer, built.template, conversation)
    id = order.head("msg_01").id
    reading = None if call.calls is None else _reading(order, call.calls)
    params = options.params
    if reading is not None:
        form = constrained(None, conversation.tools, call.calls, reading.style, reading.markers)
        params = replace(params, constraint=form)
    request = _fitted(order, Request(id, tokens, params, CacheScope(tenant=order.caller.tenant)))
    contract = order.ledgers.shows_contract("anthropic")
    shape = MessageShape(
        id=id,
        model=order.served_name,
        max_tokens=options.params.max_tokens or 0,
        settle=by_contract(order, id, call, tokens) if contract else physically,
        stops=options.params.stop,
        reading=reading,
        parallel=call.calls is not None and call.calls.parallel,
    )
    render: Render = (MessageStream if options.stream else MessageAnswer)(shape, built.tokenizer)

    def place(_prompt: int, token: int) -> Place:
        return place_in_conversation(
            built.tokenizer, order.room.lengths, built.template, conversation, tokens, token
        )

    return Job(id, (request,), render, options.stream, place, options.ignored)


def _reading(order: Order, calls: ToolUse) -> ToolReading:
    return ToolReading.of(order.built.tokenizer, order.built.template.tool_style, calls.names)


def _fitted(order: Order, request: Request) -> Request:
    """Clients ask for tens of thousands of tokens by habit: an answer may end where the context does.

    Raises ContextLengthError for a prompt that is too long by itself.
    """
    params = request.params
    if len(request.prompt) + (params.max_tokens or 0) > order.longest:
        request = replace(request, params=replace(params, max_tokens=None))
    try:
        order.built.loop.check(request)
    except ContextLengthError as error:
        raise ContextLengthError(error.message, param="messages", hint=error.hint) from None
    return request
