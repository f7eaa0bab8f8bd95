"""The events of several engine requests as one stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from sapwood.server.ports import Engine
from sapwood.types import Event, Request

_AT_ONCE = 64
"""Requests that are submitted before others have a turn: to check thousands of prompts takes a while."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """An event and the index of the request that it belongs to."""

    prompt: int
    event: Event


class MergedEvents:
    """Submits all requests on entry; leaving the block aborts those that still run."""

    def __init__(self, engine: Engine, requests: Sequence[Request]) -> None:
        self._engine, self._requests = engine, requests
        self._arrived: asyncio.Queue[Arrival | Exception] = asyncio.Queue()
        self._pumps: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        try:
            for prompt, request in enumerate(self._requests):
                self._pumps.append(asyncio.create_task(self._pump(prompt, self._engine.generate(request))))
                if len(self._pumps) % _AT_ONCE == 0:
                    await asyncio.sleep(0)
        except asyncio.CancelledError:
            await self.__aexit__(None, None, None)
            raise
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

    async def _pump(self, prompt: int, events: AsyncIterator[Event]) -> None:
        # Cancelled, this task is always waiting inside the engine's iterator, which then aborts the request.
        try:
            async for event in events:
                self._arrived.put_nowait(Arrival(prompt, event))
        except Exception as error:
            self._arrived.put_nowait(error)
