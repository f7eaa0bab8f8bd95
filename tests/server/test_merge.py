from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from sapwood.errors import UnavailableError
from sapwood.server.merge import MergedEvents
from sapwood.server.ports import Engine
from sapwood.types import Delta, Event, Finished, Request, SamplingParams, Usage

MANY = 300
AT_ONCE = 64


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
        async with MergedEvents(cast("Engine", engine), requests(), AT_ONCE) as events:
            arrived = [await events.take(5) for _ in range(MANY)]
        return {(each.prompt, each.event.request_id) for each in arrived}

    assert asyncio.run(run()) == {(n, str(n)) for n in range(MANY)}


def test_so_many_at_once_are_asked_for_and_no_more() -> None:
    async def run() -> set[str]:
        engine = Slow()
        async with MergedEvents(cast("Engine", engine), requests(), AT_ONCE) as events:
            await asyncio.sleep(0.01)
            assert engine.open == {str(n) for n in range(AT_ONCE)}
            engine.may.set()
            arrived = [await events.take(5) for _ in range(MANY)]
        assert engine.most == AT_ONCE
        return {each.event.request_id for each in arrived}

    assert asyncio.run(run()) == {str(n) for n in range(MANY)}


@pytest.mark.parametrize("turns", [1, 2, 3, 50])
def test_whoever_leaves_while_they_are_submitted_or_later_leaves_none_behind(turns: int) -> None:
    async def run() -> int:
        engine = Slow()

        async def ask() -> Any:
            async with MergedEvents(cast("Engine", engine), requests(), AT_ONCE) as events:
                await events.take(None)

        asking = asyncio.create_task(ask())
        for _ in range(turns):
            await asyncio.sleep(0)
        assert not asking.done()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert engine.most <= AT_ONCE
        return len(engine.open)

    assert asyncio.run(run()) == 0


class Slowly:
    """An engine that answers after so many seconds, again and again."""

    def __init__(self, *pauses: float) -> None:
        self._pauses = pauses

    async def generate(self, request: Request) -> AsyncIterator[Event]:
        for pause in self._pauses:
            await asyncio.sleep(pause)
            yield Delta(request.id, 0, "x", (1,))


def test_patience_is_counted_from_each_time_that_it_is_asked_for() -> None:
    async def run() -> list[str]:
        heard = []
        async with MergedEvents(cast("Engine", Slowly(0.0, 0.01, 0.5, 0.0)), requests()[:1], 1) as events:
            for patience in (5.0, 5.0, 0.05, 0.02, 5.0, None, 0.03):
                try:
                    await events.take(patience)
                    heard.append("event")
                except TimeoutError:
                    heard.append("nothing")
        return heard

    assert asyncio.run(run()) == ["event", "event", "nothing", "nothing", "event", "event", "nothing"]


def test_what_a_request_raises_comes_after_what_it_said() -> None:
    class Failing(Slowly):
        async def generate(self, request: Request) -> AsyncIterator[Event]:
            yield Delta(request.id, 0, "x", (1,))
            raise UnavailableError("gone")

    async def run() -> None:
        async with MergedEvents(cast("Engine", Failing()), requests()[:1], 1) as events:
            await asyncio.sleep(0.01)
            assert (await events.take(5)).event == Delta("0", 0, "x", (1,))
            with pytest.raises(UnavailableError, match="gone"):
                await events.take(5)

    asyncio.run(run())
