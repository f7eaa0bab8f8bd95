"""Gemini's `cachedContents`: create, get, list, change the expiry of, delete.

Creating one reads it into the KV cache, so that its first use reuses it already. Its pages are asked to be kept
until it expires; that is a wish, and the object itself (its conversation and tokens) does not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sapwood.chat import Conversation, Json, Place, place_in_conversation, read_json
from sapwood.chat.gemini import CACHED_NAME, MODEL_NAME
from sapwood.chat.gemini_cached import Lifetime, parse_create, parse_update
from sapwood.chat.gemini_prefix import make_prefix
from sapwood.contract import GEMINI_EXPLICIT
from sapwood.errors import RequestError
from sapwood.server.body import read_limited
from sapwood.server.caller import caller_of
from sapwood.server.explain import Explanations
from sapwood.server.gemini_caches import CachedContent, CachedContents, NewContent
from sapwood.server.gemini_wire import GEMINI
from sapwood.server.generate import GenerateEndpoint, Job, Order
from sapwood.server.native import DialectEndpoint, fitted
from sapwood.server.openai_routes import check_model
from sapwood.server.promises import kept_for
from sapwood.server.slot import Slot
from sapwood.types import LONGEST_SECONDS, Event, Request, SamplingParams, Scope, Usage


def prepare_create(order: Order) -> Job:
    """`POST cachedContents`: a prompt that is read and not answered."""
    built, objects, tenant = order.built, order.ledgers.gemini_objects, order.caller.tenant
    call = parse_create(read_json(order.body))
    check_model(call.model, order.served_name)
    given = call.prompt
    conversation = Conversation((*given.system, *given.turns), tools=given.tools.defined)
    order.room.check_conversation(conversation, "contents")
    prefix = make_prefix(built.tokenizer, built.template, conversation)
    _check_size(len(prefix.tokens))
    content = NewContent(call.model, call.display_name, prefix, given.tools.use)
    objects.check_room(tenant, content)
    lifetime = _expiry(call.lifetime or Lifetime(seconds=GEMINI_EXPLICIT.ttl))
    now = objects.now()
    request = Request(
        id=order.head("gen").id,
        prompt=prefix.tokens,
        params=SamplingParams(max_tokens=0),
        scope=Scope(tenant=tenant),
        retain=kept_for(built, lifetime(now) - now, len(prefix.tokens)),
    )
    fitted(order, request, cut=False)

    def place(_prompt: int, token: int) -> Place:
        return place_in_conversation(
            built.tokenizer, order.room.lengths, built.template, prefix.conversation, prefix.tokens, token
        )

    creation = _Creation(lambda: objects.add(tenant, content, lifetime))
    return Job(request.id, (request,), creation, False, place)


class _Creation:
    """An object comes to be when its prompt has been read."""

    def __init__(self, add: Callable[[], CachedContent]) -> None:
        self._add = add

    def feed(self, prompt: int, event: Event) -> list[Json]:  # noqa: ARG002 (nothing is told before the end)
        return []

    def end(self, usages: Sequence[Usage]) -> list[Json]:  # noqa: ARG002 (the object counts its own)
        return [object_json(self._add())]


class GeminiObjects:
    """The handlers, bound to one slot."""

    def __init__(self, slot: Slot, explanations: Explanations, max_body_bytes: int) -> None:
        self._slot, self._max_body_bytes = slot, max_body_bytes
        self._create = GenerateEndpoint(prepare_create, slot, explanations, max_body_bytes, GEMINI)

    def routes(self, version: str) -> list[Route]:
        objects, one = f"{version}/cachedContents", f"{version}/cachedContents/{{id}}"
        handlers = {"GET": self.get, "PATCH": self.update, "DELETE": self.delete}
        return [
            Route(objects, self._create, methods=["POST"]),
            Route(objects, DialectEndpoint(GEMINI, self.page), methods=["GET"]),
            *(Route(one, DialectEndpoint(GEMINI, each), methods=[verb]) for verb, each in handlers.items()),
        ]

    async def get(self, request: HttpRequest) -> Response:
        return JSONResponse(object_json(self._objects.get(*_asked(request))))

    async def page(self, request: HttpRequest) -> Response:
        query = request.query_params
        size = _number(query.get("pageSize") or "0", "pageSize") or GEMINI_EXPLICIT.longest_page
        after = _number(query.get("pageToken") or "0", "pageToken")
        tenant = caller_of(request.scope).tenant
        found = self._objects.page(tenant, min(size, GEMINI_EXPLICIT.longest_page), after)
        told: Json = {"cachedContents": [object_json(each) for each in found.objects]}
        if found.next is not None:
            told["nextPageToken"] = str(found.next)
        return JSONResponse(told)

    async def update(self, request: HttpRequest) -> Response:
        body = await read_limited(request, self._max_body_bytes, lambda: self._slot.stopping)
        lifetime = _expiry(await run_in_threadpool(lambda: parse_update(read_json(body))))
        return JSONResponse(object_json(self._objects.renew(*_asked(request), lifetime)))

    async def delete(self, request: HttpRequest) -> Response:
        self._objects.delete(*_asked(request))
        return JSONResponse({})

    @property
    def _objects(self) -> CachedContents:
        return self._slot.ledgers.gemini_objects


def object_json(cached: CachedContent) -> Json:
    """What is told of an object; what it holds is not."""
    content = cached.content
    told: Json = {
        "name": CACHED_NAME + cached.id,
        "model": MODEL_NAME + content.model,
        "createTime": _timestamp(cached.created),
        "updateTime": _timestamp(cached.updated),
        "expireTime": _timestamp(cached.expires),
        "usageMetadata": {"totalTokenCount": content.tokens},
    }
    return {**told, "displayName": content.display_name} if content.display_name else told


def _check_size(tokens: int) -> None:
    least = GEMINI_EXPLICIT.minimum
    if tokens < least:
        raise RequestError(
            f"Cached content is too small. total_token_count={tokens}, min_total_token_count={least}",
            param="contents",
        )


def _expiry(lifetime: Lifetime) -> Callable[[float], float]:
    """When what begins at a moment expires. Raises RequestError for a moment that has passed."""

    def expires(now: float) -> float:
        if lifetime.moment is None:
            assert lifetime.seconds is not None, "one of the two is given"
            return now + lifetime.seconds
        if not now < lifetime.moment <= now + LONGEST_SECONDS:
            raise RequestError(
                f"'expireTime' is {_timestamp(lifetime.moment)}; it must be later than now,"
                f" {_timestamp(now)}, by at most {LONGEST_SECONDS:.0f} s",
                param="expireTime",
            )
        return lifetime.moment

    return expires


def _asked(request: HttpRequest) -> tuple[str, str]:
    return caller_of(request.scope).tenant, request.path_params["id"]


def _number(text: str, param: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise RequestError(f"{param!r} is {text[:40]!r}; it must be a whole number, 0 or more", param=param)
    return int(text)


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
