"""Computes what a pin is to hold, then holds it: the side of a pin that waits for the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

from sapwood.engine.engine import Engine
from sapwood.engine.pins import Pin
from sapwood.errors import RequestError, SapwoodError, UnavailableError
from sapwood.types import Event, Finished, Request

_T = TypeVar("_T")

_ATTEMPTS = 2
"""How often a prompt is computed for a pin before others are said to evict it too fast."""


@dataclass(frozen=True, slots=True)
class PinReport:
    """Pins that were asked about, and what all pins hold now, in tokens."""

    pins: tuple[Pin, ...]
    pinned_tokens: int
    budget_tokens: int


class Loop(Protocol):
    """`EngineLoop`, as far as a pin needs it."""

    def call(self, function: Callable[[Engine], _T]) -> Future[_T]: ...

    def generate(self, request: Request) -> AsyncIterator[Event]: ...


def check_pin(engine: Engine, tokens: int) -> None:
    """What the length of a prompt alone forbids, before any work. From any thread. Raises RequestError."""
    if not engine.reuse:
        raise RequestError(
            "nothing can be pinned: prefixes are not reused",
            code="reuse_off",
            hint="start the server with --prefix-index radix",
        )
    engine.pins.check_length(tokens)


async def pin_prompt(loop: Loop, pin_id: str, request: Request, clock: Callable[[], float]) -> PinReport:
    """Hold all whole pages of the request's prompt; compute what is missing by running the request.

    Raises RequestError, UnavailableError if others evict faster than it computes, and holds nothing then, nor if
    this is cancelled.
    """
    made: list[Pin] = []

    def pin(engine: Engine) -> PinReport | None:
        held = engine.pin(pin_id, request.scope, request.prompt, clock())
        if held is None:
            return None
        made.append(held)
        return report(engine, held)

    try:
        for attempt in range(_ATTEMPTS + 1):
            done = await asyncio.wrap_future(loop.call(pin))
            if done is not None:
                return done
            if attempt < _ATTEMPTS:
                await _compute(loop, request)
    except asyncio.CancelledError:
        # The engine may have pinned it meanwhile, and nobody would know.
        with suppress(UnavailableError):
            loop.call(lambda engine: engine.pins.let_go(made))
        raise
    raise UnavailableError(
        "the prompt was evicted again before it could be pinned",
        hint="other requests fill the pool, or the tenant's max_hot_tokens; try again, unpin something, or allow more",
    )


def report(engine: Engine, *pins: Pin) -> PinReport:
    return PinReport(pins, engine.pins.pinned_tokens, engine.pins.budget)


async def _compute(loop: Loop, request: Request) -> None:
    async for event in loop.generate(request):
        if isinstance(event, Finished) and event.error is not None:
            raise (UnavailableError if event.refused else SapwoodError)(event.error)
