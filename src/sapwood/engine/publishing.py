"""Computes the public prefixes before the first request, and holds them for good."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Protocol, TypeVar

from sapwood.engine.engine import Engine
from sapwood.errors import RequestError, SapwoodError, UsageError
from sapwood.types import Event, Finished, Request, SamplingParams

_T = TypeVar("_T")


class Loop(Protocol):
    """`EngineLoop`, as far as this needs it."""

    def call(self, function: Callable[[Engine], _T]) -> Future[_T]: ...

    def generate_blocking(self, request: Request) -> Iterator[Event]: ...


def publish(loop: Loop, engine: Engine, prefixes: Mapping[str, tuple[int, ...]]) -> None:
    """Let every tenant read these prompts' whole pages, from now on. Blocks while they are computed.

    Raises UsageError, and publishes nothing, for what cannot be held.
    """
    if not engine.reuse:
        raise UsageError(
            "there can be no public prefixes: prefixes are not reused",
            hint="start the server with --prefix-index radix, or leave [[public_prefix]] out",
        )
    held = 0
    for name, tokens in prefixes.items():
        whole = engine.pins.whole_pages(len(tokens))
        held += whole
        if not whole:
            raise UsageError(
                f"public prefix {name!r} has {len(tokens)} tokens, less than one page",
                hint="make it longer, leave it out, or start the server with a smaller --page-size",
            )
    if held > engine.pins.budget:
        raise UsageError(
            f"public prefixes have {held} tokens; together with pins they may hold {engine.pins.budget}",
            hint="shorten them, or allow more with --pin-share or --kv-memory",
        )
    for name, tokens in prefixes.items():
        _compute(loop, name, tokens)
    loop.call(lambda engine: engine.publish([*prefixes.values()])).result()


def _compute(loop: Loop, name: str, tokens: tuple[int, ...]) -> None:
    request = Request(f"public-{name}", tokens, SamplingParams(max_tokens=0))
    try:
        for event in loop.generate_blocking(request):
            if isinstance(event, Finished) and event.error is not None:
                raise SapwoodError(f"public prefix {name!r} could not be computed: {event.error}")
    except RequestError as error:
        raise UsageError(
            f"public prefix {name!r} cannot be computed: {error.message}", hint=error.hint
        ) from error
