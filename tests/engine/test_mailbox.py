"""Mail from a thread to coroutines: in order, none lost, and one waking for much of it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from unittest import mock

import pytest

from sapwood.engine.mailbox import AsyncMailbox, Post
from sapwood.errors import UnavailableError
from sapwood.types import Delta, Event

BOXES, MAILS = 5, 400


def delta(n: int) -> Event:
    return Delta("r", 0, str(n), (n,))


def test_all_that_a_thread_puts_comes_to_each_reader_in_order() -> None:
    async def read(box: AsyncMailbox) -> list[Event]:
        return [event for _ in range(MAILS) for event in await box.get()]

    async def run() -> list[list[Event]]:
        post = Post(asyncio.get_running_loop())
        boxes = [AsyncMailbox(post) for _ in range(BOXES)]
        thread = threading.Thread(target=lambda: [box.put([delta(n)]) for n in range(MAILS) for box in boxes])
        thread.start()
        read_by_each = await asyncio.gather(*map(read, boxes))
        thread.join()
        return read_by_each

    assert asyncio.run(run()) == [[delta(n) for n in range(MAILS)]] * BOXES


def test_the_loop_is_woken_once_for_what_is_put_before_it_comes() -> None:
    async def run() -> int:
        loop = asyncio.get_running_loop()
        post = Post(loop)
        boxes = [AsyncMailbox(post) for _ in range(BOXES)]
        with mock.patch.object(loop, "call_soon_threadsafe", wraps=loop.call_soon_threadsafe) as woken:
            for turn in range(2):
                for box in boxes:
                    assert box.put([delta(turn)])
                for box in boxes:
                    assert await box.get() == [delta(turn)]
        return woken.call_count

    assert asyncio.run(run()) == 2


def test_an_error_is_raised_where_it_is_read_after_what_came_before() -> None:
    async def run() -> None:
        box = AsyncMailbox(Post(asyncio.get_running_loop()))
        box.put([delta(1)])
        box.put(UnavailableError("gone"))
        assert await box.get() == [delta(1)]
        with pytest.raises(UnavailableError, match="gone"):
            await box.get()

    asyncio.run(run())


def test_a_reader_that_gave_up_loses_no_mail() -> None:
    async def run() -> Any:
        box = AsyncMailbox(Post(asyncio.get_running_loop()))
        reading = asyncio.create_task(box.get())
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        box.put([delta(1)])
        return await box.get()

    assert asyncio.run(run()) == [delta(1)]


def test_nobody_is_reached_in_a_loop_that_is_closed() -> None:
    async def make() -> AsyncMailbox:
        box = AsyncMailbox(Post(asyncio.get_running_loop()))
        box.put([delta(1)])  # And nobody comes for it.
        return box

    assert not asyncio.run(make()).put([delta(2)])
