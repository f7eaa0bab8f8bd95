from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from sapwood.server.merge import MergedEvents
from sapwood.server.ports import Engine
from sapwood.types import Event, Finished, Request, SamplingParams, Usage

MANY = 300


class Slow:
    """An engine that answers each request once it may; `open` are those that it was asked for and has not let go."""

    def __init__(self) -> None:
        self.open: set[str] = set()
        self.most = 0
        self.may = asyncio.Event()

    async def generate(self, request: Request) -> AsyncIterator[Event]:
        self.open.add(request.id)
        self.most = max(self.most, len(self.open))
        try:
            await self.may.wait()
            yield Finished(request.id, Usage(1, 0, {"last_token": 1}))
        finally:
            self.open.remove(request.id)


def requests() -> list[Request]:
    return [Request(str(n), (1,), SamplingParams(max_tokens=0)) for n in range(MANY)]


def test_all_of_many_requests_are_answered_each_under_its_own_number() -> None:
    async def run() -> set[tuple[int, str]]:
        engine = Slow()
        engine.may.set()
        async with MergedEvents(cast("Engine", engine), requests()) as events:
            arrived = [await events.take(5) for _ in range(MANY)]
        return {(each.prompt, each.event.request_id) for each in arrived}

    assert asyncio.run(run()) == {(n, str(n)) for n in range(MANY)}


def test_others_have_a_turn_while_many_are_submitted() -> None:
    async def run() -> list[int]:
        engine, seen = Slow(), list[int]()

        async def watch() -> None:
            while len(engine.open) < MANY:
                seen.append(len(engine.open))
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        async with MergedEvents(cast("Engine", engine), requests()):
            await watching
        return seen

    assert len(set(asyncio.run(run()))) >= 4


@pytest.mark.parametrize("turns", [1, 2, 3, 50])
def test_whoever_leaves_while_they_are_submitted_or_later_leaves_none_behind(turns: int) -> None:
    async def run() -> tuple[int, int]:
        engine = Slow()

        async def ask() -> Any:
            async with MergedEvents(cast("Engine", engine), requests()) as events:
                await events.take(None)

        asking = asyncio.create_task(ask())
        for _ in range(turns):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        return engine.most, len(engine.open)

    most, left = asyncio.run(run())
    assert left == 0
    assert most == MANY if turns == 50 else most < MANY
