"""What may be asked of the engine's thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from sapwood.engine.engine import Engine
from sapwood.engine.limits import Admission
from sapwood.engine.mailbox import Mailbox


@dataclass(frozen=True, slots=True)
class Add:
    """Serve a request, which was handed over at `sent`."""

    admission: Admission
    mailbox: Mailbox
    sent: float


@dataclass(frozen=True, slots=True)
class Abort:
    request_id: str
    mailbox: Mailbox


@dataclass(frozen=True, slots=True)
class Call:
    """Run a function between steps."""

    function: Callable[[Engine], Any]
    answer: Future[Any]


@dataclass(frozen=True, slots=True)
class Stop:
    """End, after `drain` seconds at most."""

    drain: float


Command = Add | Abort | Call | Stop
