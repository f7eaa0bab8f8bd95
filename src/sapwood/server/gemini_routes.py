"""The Gemini dialect's routes: generating, streamed or not, counting, and models. Under `/v1` and `/v1beta`,
for its SDK's releases differ in that."""

from __future__ import annotations

from dataclasses import dataclass, replace

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sapwood.chat import Conversation, Json, Message, Render, ToolReading, ToolUse, read_json
from sapwood.chat.gemini import GenerateCall, model_name, parse_count, parse_generate
from sapwood.chat.gemini_prefix import behind, continue_prefix
from sapwood.chat.gemini_render import GeminiAnswer, GeminiShape, GeminiStream
from sapwood.chat.replay import EncodedChat
from sapwood.chat.replies import OwnReplies
from sapwood.chat.thinking import prompted
from sapwood.contract import GEMINI, implicit_billing
from sapwood.errors import NotFoundError, RequestError
from sapwood.server.body import read_limited
from sapwood.server.caller import caller_of
from sapwood.server.chat_prompt import ChatPrompt, answer_form, encoded_prompt
from sapwood.server.explain import Explanations
from sapwood.server.gemini_caches import CachedContent, CachedContents
from sapwood.server.gemini_models import gemini_model
from sapwood.server.gemini_objects import GeminiObjects
from sapwood.server.gemini_wire import GEMINI as GEMINI_WIRE
from sapwood.server.generate import GenerateEndpoint, Job, Order
from sapwood.server.ledgers import Ledgers
from sapwood.server.native import DialectEndpoint, fitted
from sapwood.server.openai_routes import check_model
from sapwood.server.ports import Built
from sapwood.server.promises import kept_for
from sapwood.server.room import PromptRoom
from sapwood.server.slot import Slot
from sapwood.types import Constraint, Request, Retain, Scope, Usage

VERSIONS = ("/v1", "/v1beta")


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is to be answered.

    Attributes:
        use: how the conversation's tools may be called.
        turns: those of the call itself.
        found: the cached object in front of them, if there is one.
        form: what the answer must be. The model does not think before that.
    """

    conversation: Conversation
    use: ToolUse | None
    turns: tuple[Message, ...]
    found: CachedContent | None
    form: Constraint | None

    @classmethod
    def of(
        cls, call: GenerateCall, built: Built, objects: CachedContents, tenant: str, room: PromptRoom
    ) -> _Asked:
        """Raises RequestError, CachedContentGoneError."""
        prompt = call.prompt
        if prompt.cached is None:
            conversation, found, use = prompt.conversation, None, prompt.tools.use
        else:
            found = objects.get(tenant, prompt.cached)
            conversation, use = behind(found.content.prefix, prompt.turns), found.content.use
        room.check_conversation(conversation, "contents")
        form = answer_form(built, call.params.constraint, conversation, use)
        conversation = prompted(built.template, conversation, formed=form is not None, thinks=call.thinks)
        return cls(conversation, use, prompt.turns, found, form)

    @property
    def cached(self) -> int:
        """Tokens that the object puts in front."""
        return 0 if self.found is None else self.found.content.tokens

    def encoded(self, built: Built, room: PromptRoom, replies: OwnReplies) -> ChatPrompt:
        """The prompt, which begins with the object's tokens."""
        conversation = self.conversation
        if self.found is None:
            return encoded_prompt(built, room, replies, conversation)
        prefix = self.found.content.prefix
        try:
            whole = encoded_prompt(built, room, replies, conversation)
            if whole.tokens[: self.cached] == prefix.tokens:
                return whole
        except RequestError:  # Not in one: see `gemini_prefix`.
            pass
        tokens = continue_prefix(built.tokenizer, built.template, prefix, self.turns, conversation)
        return ChatPrompt(conversation, EncodedChat(tokens, (), None), built, room.lengths, replies)


def prepare_generate(order: Order) -> Job:
    """`POST models/{id}:generateContent`."""
    return _job(order, stream=False)


def prepare_stream(order: Order) -> Job:
    """`POST models/{id}:streamGenerateContent`."""
    return _job(order, stream=True)


def _job(order: Order, *, stream: bool) -> Job:
    built, facts, tenant = order.built, order.built.facts, order.caller.tenant
    check_model(model_name(order.path["id"]), order.served_name)
    call = parse_generate(read_json(order.body), vocab_size=facts.vocab_size, defaults=facts.sampling)
    asked = _Asked.of(call, built, order.ledgers.gemini_objects, tenant, order.room)
    scope = Scope(tenant=tenant)
    prompt = asked.encoded(built, order.room, order.replies.of(scope))
    tokens = prompt.before(asked.form)
    id, params = order.head("gen").id, replace(call.params, constraint=asked.form)
    request = fitted(order, Request(id, tokens, params, scope, retain=_kept(order, asked)), cut=True)
    shape = GeminiShape(
        id=id,
        model=order.served_name,
        n=params.n,
        cached=lambda usage: _cached(order.ledgers, asked.cached, usage),
        logprobs=call.logprobs,
        reading=ToolReading.after(built.tokenizer, built.template, asked.conversation, tokens, asked.use),
        thoughts=call.thoughts,
    )
    render: Render = (GeminiStream if stream else GeminiAnswer)(shape, built.tokenizer)
    render = prompt.remembered(render, request, shape.reading)
    return Job(id, (request,), render, stream, prompt.place, call.ignored)


def _kept(order: Order, asked: _Asked) -> tuple[Retain, ...]:
    """An object that is used is asked to be retained for the rest of its time."""
    if asked.found is None:
        return ()
    left = asked.found.expires - order.ledgers.gemini_objects.now()
    return kept_for(order.built, left, asked.cached)


def _cached(ledgers: Ledgers, promised: int, usage: Usage) -> int:
    """An object is billed as cached even where it had to be computed again: that was promised."""
    if not ledgers.shows_contract("gemini"):
        return usage.reused
    return promised or implicit_billing(GEMINI, usage.prompt_tokens, usage.reused).read


class GeminiRoutes:
    """The handlers, bound to one slot."""

    wire = GEMINI_WIRE

    def __init__(self, slot: Slot, explanations: Explanations, max_body_bytes: int) -> None:
        self._slot, self._max_body_bytes = slot, max_body_bytes
        self._generating = {
            verb: GenerateEndpoint(prepare, slot, explanations, max_body_bytes, GEMINI_WIRE)
            for verb, prepare in (
                ("generateContent", prepare_generate),
                ("streamGenerateContent", prepare_stream),
            )
        }
        self._objects = GeminiObjects(slot, explanations, max_body_bytes)

    def routes(self) -> list[Route]:
        return [*(route for version in VERSIONS for route in self._versioned(version)), *self._models()]

    def _versioned(self, version: str) -> list[Route]:
        call = f"{version}/models/{{id:path}}"
        count, unknown = (DialectEndpoint(GEMINI_WIRE, each) for each in (self.count_tokens, self.unknown))
        return [
            *(Route(f"{call}:{verb}", each, methods=["POST"]) for verb, each in self._generating.items()),
            Route(f"{call}:countTokens", count, methods=["POST"]),
            Route(call, unknown, methods=["POST"]),
            *self._objects.routes(version),
        ]

    def _models(self) -> list[Route]:
        """Under `/v1` those of all dialects answer."""
        return [
            Route("/v1beta/models", DialectEndpoint(GEMINI_WIRE, self.models), methods=["GET"]),
            Route("/v1beta/models/{id:path}", DialectEndpoint(GEMINI_WIRE, self.model), methods=["GET"]),
        ]

    async def models(self, _request: HttpRequest) -> Response:
        return JSONResponse({"models": [gemini_model(self._slot.name, self._slot.get().facts)]})

    async def model(self, request: HttpRequest) -> Response:
        facts = self._slot.get().facts
        check_model(request.path_params["id"], self._slot.name)
        return JSONResponse(gemini_model(self._slot.name, facts))

    async def unknown(self, request: HttpRequest) -> Response:
        asked = request.path_params["id"][-100:]
        raise NotFoundError(
            f"there is no such method: models/{asked}",
            hint="generateContent, streamGenerateContent and countTokens are there",
        )

    async def count_tokens(self, request: HttpRequest) -> Response:
        body = await read_limited(request, self._max_body_bytes, lambda: self._slot.stopping)
        model, tenant = model_name(request.path_params["id"]), caller_of(request.scope).tenant
        return JSONResponse(await run_in_threadpool(self._counted, model, body, tenant))

    def _counted(self, model: str, body: bytes, tenant: str) -> Json:
        """Renders and encodes as for an answer; nothing reaches the engine or its cache."""
        built, room = self._slot.get(), self._slot.room
        check_model(model, self._slot.name)
        facts = built.facts
        call = parse_count(read_json(body), vocab_size=facts.vocab_size, defaults=facts.sampling)
        asked = _Asked.of(call, built, self._slot.ledgers.gemini_objects, tenant, room)
        prompt = asked.encoded(built, room, self._slot.replies.of(Scope(tenant=tenant)))
        return {"totalTokens": len(prompt.before(asked.form)), "cachedContentTokenCount": asked.cached}
