"""The Anthropic dialect's routes: messages, with what its cache rules promise, and the counting of tokens."""

from __future__ import annotations

from dataclasses import replace

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sapwood.chat import Json, Render, read_json
from sapwood.chat.anthropic import parse_count, parse_messages
from sapwood.chat.anthropic_render import MessageAnswer, MessageShape, MessageStream
from sapwood.chat.sse import encode_named_event
from sapwood.chat.thinking import prompted, with_thinking
from sapwood.chat.tool_answer import ToolReading
from sapwood.errors import OutOfPagesError, UnavailableError
from sapwood.server.anthropic_contract import by_contract, physically
from sapwood.server.body import read_limited
from sapwood.server.caller import Caller, caller_of
from sapwood.server.chat_prompt import answer_form, chat_prompt, chat_tokens
from sapwood.server.errors import error_json, status_of
from sapwood.server.explain import Explanations
from sapwood.server.generate import GenerateEndpoint, Job, Order
from sapwood.server.native import fitted
from sapwood.server.openai_routes import check_model
from sapwood.server.promises import retaining
from sapwood.server.slot import Slot
from sapwood.server.wire import WIRE_KEY, Wire
from sapwood.types import Request
from sapwood.types import Scope as CacheScope

_OVERLOADED = 529


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


_PING = encode_named_event({"type": "ping"})
ANTHROPIC = Wire(b"text/event-stream; charset=utf-8", encode_named_event, b"", _PING, _error, _status)


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
        return JSONResponse(
            {"input_tokens": await run_in_threadpool(self._counted, body, caller_of(request.scope))}
        )

    def _counted(self, body: bytes, caller: Caller) -> int:
        """Renders and encodes as for an answer; nothing reaches the engine or its cache."""
        built = self._slot.get()
        call = parse_count(read_json(body))
        check_model(call.model, self._slot.name)
        self._slot.room.check_conversation(call.conversation, "messages")
        conversation = with_thinking(built.template, call.conversation, wanted=call.thinks)
        return len(chat_tokens(self._slot, caller, conversation))


def prepare_message(order: Order) -> Job:
    """`POST /v1/messages`."""
    built, facts = order.built, order.built.facts
    call = parse_messages(read_json(order.body), vocab_size=facts.vocab_size, defaults=facts.sampling)
    options, use = call.options, call.calls
    check_model(options.model, order.served_name)
    order.room.check_conversation(call.conversation, "messages")
    form = answer_form(built, options.params.constraint, call.conversation, use)
    formed = form is not None
    conversation = prompted(built.template, call.conversation, formed=formed, thinks=call.thinks)
    call = replace(call, conversation=conversation)
    prompt = chat_prompt(order, conversation)
    tokens = prompt.before(form)
    id = order.head("msg_01").id
    params = replace(options.params, constraint=form)
    request = Request(id, tokens, params, CacheScope(tenant=order.caller.tenant))
    request = fitted(order, request, cut=True, param="messages")
    contract = order.ledgers.shows_contract("anthropic")
    planned = by_contract(order, id, call, prompt, tokens) if contract else None
    shape = MessageShape(
        id=id,
        model=order.served_name,
        max_tokens=options.params.max_tokens or 0,
        settle=planned or physically,
        stops=options.params.stop,
        reading=ToolReading.after(built.tokenizer, built.template, conversation, tokens, use),
    )
    render: Render = (MessageStream if options.stream else MessageAnswer)(shape, built.tokenizer)
    render = prompt.remembered(render, request, shape.reading)
    request = retaining(order, request, None if planned is None else planned.plan)
    ignored = tuple(name for name in options.ignored if name != "thinking" or not built.template.thinks)
    return Job(id, (request,), render, options.stream, prompt.place, ignored)
