"""Where the engine thread leaves a request's events for whoever waits for them."""

from __future__ import annotations

import asyncio
import queue
from typing import Protocol

from sapwood.errors import SapwoodError
from sapwood.types import Event

Mail = list[Event] | SapwoodError
"""Events of one step, or why there will be no more."""


class Mailbox(Protocol):
    def put(self, mail: Mail) -> bool:
        """Called by the engine thread; never blocks. False when nobody can read it any more."""
        ...


class AsyncMailbox:
    """Read by a coroutine; must be created in its event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Mail] = asyncio.Queue()

    def put(self, mail: Mail) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, mail)
        except RuntimeError:  # The event loop is closed.
            return False
        return True

    async def get(self) -> list[Event]:
        """Raises the error that was put."""
        return _opened(await self._queue.get())


class BlockingMailbox:
    """Read by a thread."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Mail] = queue.SimpleQueue()

    def put(self, mail: Mail) -> bool:
        self._queue.put(mail)
        return True

    def get(self) -> list[Event]:
        """Raises the error that was put."""
        return _opened(self._queue.get())


def _opened(mail: Mail) -> list[Event]:
    if isinstance(mail, SapwoodError):
        raise mail
    return mail
