"""The events of several engine requests as one stream."""

from __future__ import annotations

import asyncio
import math
from collections import deque
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
        self._arrived: deque[Arrival | Exception] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._patience_ends = math.inf
        self._alarm: asyncio.TimerHandle | None = None
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
        if self._alarm is not None:
            self._alarm.cancel()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def take(self, patience: float | None) -> Arrival:
        """The next event. Raises TimeoutError after `patience` quiet seconds, and what a request raised.

        One reader at a time.
        """
        if not self._arrived:
            await self._wait(patience)
        arrived = self._arrived.popleft()
        if isinstance(arrived, Exception):
            raise arrived
        return arrived

    async def _wait(self, patience: float | None) -> None:
        # One alarm for thousands of events: it rings when it may be time, and is set anew if it is not.
        loop = asyncio.get_running_loop()
        self._reader = loop.create_future()
        self._patience_ends = math.inf if patience is None else loop.time() + patience
        if self._alarm is None or self._alarm.when() > self._patience_ends:
            self._set_alarm(loop)
        await self._reader

    def _set_alarm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._patience_ends < math.inf:
            self._alarm = loop.call_at(self._patience_ends, self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._alarm = None
        if loop.time() < self._patience_ends:
            self._set_alarm(loop)
        elif self._reader is not None and not self._reader.done():
            self._reader.set_exception(TimeoutError())

    def _put(self, arrived: Arrival | Exception) -> None:
        self._arrived.append(arrived)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def _pump(self) -> None:
        """One request after the other, until none is left."""
        # Cancelled, this task is always waiting inside the engine's iterator, which then aborts the request.
        try:
            for prompt, request in self._waiting:
                async for event in self._engine.generate(request):
                    self._put(Arrival(prompt, event))
        except Exception as error:
            self._put(error)
