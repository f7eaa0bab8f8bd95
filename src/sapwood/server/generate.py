"""One handler for every route that generates, streamed or not: read, prepare, submit, render, clean up."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.types import Receive, Scope, Send

from sapwood.chat import Head, Json, Place, Render
from sapwood.chat.replies import ReplyStore
from sapwood.errors import DeadEndError, SapwoodError, UnavailableError
from sapwood.server.body import read_limited
from sapwood.server.caller import Caller, caller_of
from sapwood.server.disconnect import unless_gone
from sapwood.server.errors import EngineFailedError
from sapwood.server.explain import Explanations, cache_header, missed_tokens
from sapwood.server.ledgers import Ledgers
from sapwood.server.log import RECORD_KEY, Record
from sapwood.server.merge import Arrival, MergedEvents
from sapwood.server.ports import Built, Engine
from sapwood.server.room import PromptRoom
from sapwood.server.slot import Slot
from sapwood.server.wire import OPENAI, WIRE_KEY, Wire
from sapwood.types import Delta, Finished, PromptScored, Request, Started, Usage

HEADER_PATIENCE = 15.0
"""Seconds a stream waits for its first event, so that early failures are real HTTP statuses."""

AT_ONCE = 1000
"""Tokens whose scores are written without letting others have a turn."""

KEEP_ALIVE_SECONDS = 10.0
"""Silence after which a stream says that it is still there."""


@dataclass(frozen=True, slots=True)
class Job:
    """A call, ready for the engine: one request per prompt, and what turns their events into the answer.

    `id` is the answer's; `place` finds a token of a prompt, both by index, for a person. It may take a while.
    """

    id: str
    requests: tuple[Request, ...]
    render: Render
    stream: bool
    place: Callable[[int, int], Place]
    ignored: tuple[str, ...] = ()
    fail: Callable[[Json], Iterable[Json]] | None = None
    """The chunks that end a stream which cannot go on, given the error as the dialect tells it; None for that alone."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a dialect is given to prepare a job from."""

    body: bytes
    built: Built
    room: PromptRoom
    ledgers: Ledgers
    replies: ReplyStore
    served_name: str
    id: str
    created: int
    caller: Caller
    headers: Mapping[str, str]
    """Of the HTTP request, names in lower case."""
    path: Mapping[str, str]
    """What the route's path holds, by name."""

    @property
    def longest(self) -> int:
        """Most tokens of prompt and answer together; the last one of an answer needs no place in the pool."""
        facts = self.built.facts
        return min(facts.max_context, facts.capacity_pages * facts.page_size + 1)

    @property
    def namespace(self) -> str:
        """The caller and the model, for the contract ledgers."""
        return f"{self.built.facts.fingerprint}/{self.caller.tenant}"

    def head(self, prefix: str) -> Head:
        """The head of an answer whose id starts with `prefix`."""
        fingerprint = f"fp_{self.built.facts.fingerprint[:16]}"
        return Head(f"{prefix}-{self.id}", self.created, self.served_name, fingerprint)


Prepare = Callable[[Order], Job]
"""A dialect: parses and encodes. Runs in a worker thread, for bodies can be long; raises RequestError."""


class GenerateEndpoint:
    """An ASGI endpoint for one route of a dialect; `wire` says how that speaks."""

    def __init__(
        self,
        prepare: Prepare,
        slot: Slot,
        explanations: Explanations,
        max_body_bytes: int,
        wire: Wire = OPENAI,
    ) -> None:
        self._prepare, self._slot, self.wire = prepare, slot, wire
        self._explanations, self._max_body_bytes = explanations, max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[WIRE_KEY] = self.wire
        built = self._slot.get()
        request = HttpRequest(scope, receive)
        body = await read_limited(request, self._max_body_bytes, lambda: self._slot.stopping)
        record: Record = scope[RECORD_KEY]
        order = Order(
            body=body,
            built=built,
            room=self._slot.room,
            ledgers=self._slot.ledgers,
            replies=self._slot.replies,
            served_name=self._slot.name,
            id=record.id,
            created=int(time.time()),
            caller=caller_of(scope),
            headers=request.headers,
            path=request.path_params,
        )
        await unless_gone(receive, self._answer(order, record, send))

    async def _answer(self, order: Order, record: Record, send: Send) -> None:
        job = _within(await run_in_threadpool(self._prepare, order), order.caller)
        call = _Call(order, job, record, self._explanations, self.wire)
        try:
            await (call.stream(send) if job.stream else call.whole(send))
        finally:
            call.sum_up()


class _Call:
    """One job while it runs."""

    def __init__(
        self, order: Order, job: Job, record: Record, explanations: Explanations, wire: Wire
    ) -> None:
        self._engine: Engine = order.built.loop
        self._places = order.built.facts.max_running
        self._job, self._record, self._explanations, self._wire = job, record, explanations, wire
        self._tenant = order.caller.tenant
        self._usages: dict[int, Usage] = {}
        self._finished: set[int] = set()
        self._scores = 0
        self._submitted_at = time.monotonic()

    @property
    def _events(self) -> MergedEvents:
        """All requests; they take at most half of the places, so that there is one for who comes next."""
        samples = max((request.params.drawn for request in self._job.requests), default=1)
        at_once = max(1, self._places // 2 // samples)
        return MergedEvents(self._engine, self._job.requests, at_once)

    async def whole(self, send: Send) -> None:
        """Everything in one body."""
        async with self._events as events:
            while self._open:
                self._feed(await events.take(None))
        body = await _apart(self._scores, self._whole_body)
        headers = [
            *self._headers(),
            (b"content-type", b"application/json"),
            _header("content-length", len(body)),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def stream(self, send: Send) -> None:
        """Frame by frame. What fails after the first byte is told in the stream, which then ends."""
        async with self._events as events:
            first = await _quiet_take(events, HEADER_PATIENCE)
            chunks = self._wire.keep_alive if first is None else await self._chunks(first)
            headers = [
                *self._headers(),
                (b"content-type", self._wire.content_type),
                (b"cache-control", b"no-cache"),
            ]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": chunks, "more_body": True})
            async for chunk in self._rest(events):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _rest(self, events: MergedEvents) -> AsyncIterator[bytes]:
        try:
            while self._open:
                arrival = await _quiet_take(events, KEEP_ALIVE_SECONDS)
                chunk = self._wire.keep_alive if arrival is None else await self._chunks(arrival)
                if chunk:
                    yield chunk
            yield self._framed(self._job.render.end(self._final_usages)) + self._wire.end
        except Exception as error:
            self._record.ending = "failed"
            told = self._wire.error(error, f"req-{self._record.id}")
            yield self._framed([told] if self._job.fail is None else self._job.fail(told))

    def sum_up(self) -> None:
        """Note what all prompts cost that were admitted. Once, at the end: there may be thousands."""
        usages = self._usages.values()
        if usages:
            self._record.prompt_tokens = sum(each.prompt_tokens for each in usages)
            self._record.reused_tokens = sum(each.reused for each in usages)
            self._record.missed_tokens = missed_tokens(usages)

    @property
    def _open(self) -> bool:
        return len(self._finished) < len(self._job.requests)

    @property
    def _final_usages(self) -> list[Usage]:
        return [self._usages[prompt] for prompt in range(len(self._job.requests))]

    def _whole_body(self) -> bytes:
        (answer,) = self._job.render.end(self._final_usages)
        return _encoded(answer, 2)

    async def _chunks(self, arrival: Arrival) -> bytes:
        return await _apart(self._scored(arrival), lambda: self._framed(self._feed(arrival)))

    def _scored(self, arrival: Arrival) -> int:
        """How many tokens of the answer get their scores by an event; a prompt's get them in each sample."""
        event = arrival.event
        if isinstance(event, PromptScored):
            params = self._job.requests[arrival.prompt].params
            return max(len(event.logprobs) - params.prompt_logprobs_start, 0) * params.n
        return len(event.logprobs) if isinstance(event, Delta) else 0

    def _framed(self, chunks: Iterable[Json]) -> bytes:
        return b"".join(self._wire.frame(chunk) for chunk in chunks)

    def _feed(self, arrival: Arrival) -> list[Json]:
        event = arrival.event
        self._scores += self._scored(arrival)
        if isinstance(event, Started | Finished):
            self._note_usage(arrival.prompt, event.usage)
        elif isinstance(event, Delta):
            self._note_tokens(len(event.token_ids))
        if isinstance(event, Finished):
            self._finished.add(arrival.prompt)
            if event.error is not None:
                raise _failure(event.error, event, self._job.requests[arrival.prompt])
        return self._job.render.feed(arrival.prompt, event)

    def _note_usage(self, prompt: int, usage: Usage) -> None:
        self._usages[prompt] = usage
        self._explanations.note(self._job.id, prompt, usage, self._tenant)
        if usage.diverged_at is not None:
            self._explanations.look_for(
                self._job.id, prompt, partial(self._job.place, prompt, usage.diverged_at), self._tenant
            )

    def _note_tokens(self, count: int) -> None:
        self._record.completion_tokens = (self._record.completion_tokens or 0) + count
        if count and self._record.first_token_seconds is None:
            self._record.first_token_seconds = time.monotonic() - self._submitted_at

    def _headers(self) -> list[tuple[bytes, bytes]]:
        headers = []
        if len(self._usages) == len(self._job.requests):
            headers.append(_header("x-sapwood-cache", cache_header(self._usages.values())))
        # Only names that a header can carry, and not more than a reader would look at.
        ignored = [name for name in self._job.ignored if re.fullmatch(r"[\w.]{1,80}", name, re.ASCII)][:16]
        if ignored:
            headers.append(_header("x-sapwood-ignored", ",".join(ignored)))
        return headers


def _failure(reason: str, event: Finished, request: Request) -> SapwoodError:
    """Whose fault it was decides how it is told."""
    if event.dead_end:
        constraint = request.params.constraint
        return DeadEndError(reason, param=None if constraint is None else constraint.param)
    return (UnavailableError if event.refused else EngineFailedError)(reason)


def _within(job: Job, caller: Caller) -> Job:
    """The job with all its requests in the caller's namespace, whatever its dialect or its body said."""
    requests = (
        replace(request, scope=replace(request.scope, tenant=caller.tenant)) for request in job.requests
    )
    return replace(job, requests=tuple(requests))


async def _quiet_take(events: MergedEvents, patience: float) -> Arrival | None:
    """The next event, or None after `patience` seconds of silence."""
    try:
        return await events.take(patience)
    except TimeoutError:
        return None


def _encoded(value: object, levels: int) -> bytes:
    """JSON, written entry by entry in so many `levels` of it: others have a turn between two of them."""
    if levels and isinstance(value, dict):
        fields = (
            f"{json.dumps(name)}:".encode() + _encoded(each, levels - 1) for name, each in value.items()
        )
        return b"{" + b",".join(fields) + b"}"
    if levels and isinstance(value, list):
        return b"[" + b",".join(_encoded(each, levels - 1) for each in value) + b"]"
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


async def _apart(scores: int, work: Callable[[], bytes]) -> bytes:
    """`work()`, by a worker thread where it is long: others are answered meanwhile."""
    return await run_in_threadpool(work) if scores > AT_ONCE else work()


def _header(name: str, value: object) -> tuple[bytes, bytes]:
    return (name.encode(), str(value).encode())
