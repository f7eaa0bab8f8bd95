"""Where the engine thread leaves a request's events for whoever waits for them."""

from __future__ import annotations

import asyncio
import queue
from collections import deque
from typing import Protocol

from sapwood.errors import SapwoodError
from sapwood.types import Event, Finished

Mail = list[Event] | SapwoodError
"""Events of one step, or why there will be no more."""


class Mailbox(Protocol):
    def put(self, mail: Mail) -> bool:
        """Called by the engine thread; never blocks. False when nobody can read it any more."""
        ...


class Post:
    """Carries mail into one event loop, which is woken once for all that is put before it comes to it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._bag: deque[tuple[AsyncMailbox, Mail]] = deque()
        self._coming = False
        """Whether the loop has been woken and has not begun to empty the bag."""

    def put(self, mailbox: AsyncMailbox, mail: Mail) -> bool:
        """From any thread; False when the loop is closed."""
        if self._loop.is_closed():
            return False
        self._bag.append((mailbox, mail))
        if not self._coming:
            self._coming = True
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # It was closed just now.
                return False
        return True

    def _deliver(self) -> None:
        self._coming = False  # First: what is put from now on wakes the loop again.
        while self._bag:
            mailbox, mail = self._bag.popleft()
            mailbox.take_in(mail)


class AsyncMailbox:
    """Read by one coroutine, in the event loop that `post` is of."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._mails: deque[Mail] = deque()
        self._reader: asyncio.Future[None] | None = None

    def put(self, mail: Mail) -> bool:
        return self._post.put(self, mail)

    def take_in(self, mail: Mail) -> None:
        """Called in the event loop."""
        self._mails.append(mail)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def get(self) -> list[Event]:
        """Raises the error that was put."""
        while not self._mails:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        return _opened(self._mails.popleft())


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


class Visit:
    """How far a caller has read the answer to one request."""

    def __init__(self) -> None:
        self.over = False

    def open(self, mail: list[Event]) -> list[Event]:
        self.over = isinstance(mail[-1], Finished)
        return mail


def _opened(mail: Mail) -> list[Event]:
    if isinstance(mail, SapwoodError):
        raise mail
    return mail
