"""For what another thread or process does in its own time."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(condition: Callable[[], bool], seconds: float = 10) -> bool:
    """Whether it comes true within so many seconds. It is asked no more once it was: asking may do something."""
    deadline = time.monotonic() + seconds
    while not (true := condition()) and time.monotonic() < deadline:
        time.sleep(0.005)
    return true


def until(condition: Callable[[], bool]) -> None:
    """Fails if it does not come true."""
    assert eventually(condition, 20)
