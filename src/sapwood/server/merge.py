"""The events of several engine requests as one stream."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from sapwood.server.ports import Engine
from sapwood.types import Event, Request


@dataclass(frozen=True, slots=True)
class Arrival:
    """An event and the index of the request that it belongs to."""

    prompt: int
    event: Event


class MergedEvents:
    """Submits the requests in their order, `at_once` at a time; leaving the block aborts those that still run.

    A call of thousands of prompts would else stand, all of it older, before whoever comes next.
    """

    def __init__(self, engine: Engine, requests: Sequence[Request], at_once: int) -> None:
        self._engine, self._requests = engine, requests
        self._arrived: asyncio.Queue[Arrival | Exception] = asyncio.Queue()
        self._waiting = iter(enumerate(requests))
        self._at_once = at_once
        self._pumps: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        for _ in range(min(self._at_once, len(self._requests))):
            self._pumps.append(asyncio.create_task(self._pump()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def take(self, patience: float | None) -> Arrival:
        """The next event. Raises TimeoutError after `patience` quiet seconds, and what a request raised."""
        async with asyncio.timeout(patience):
            arrived = await self._arrived.get()
        if isinstance(arrived, Exception):
            raise arrived
        return arrived

    async def _pump(self) -> None:
        """One request after the other, until none is left."""
        # Cancelled, this task is always waiting inside the engine's iterator, which then aborts the request.
        try:
            for prompt, request in self._waiting:
                async for event in self._engine.generate(request):
                    self._arrived.put_nowait(Arrival(prompt, event))
        except Exception as error:
            self._arrived.put_nowait(error)
