"""A clock that can be put forward, so that what lives for an hour can be seen to end now."""

from __future__ import annotations

import threading
from collections.abc import Callable

from sapwood.errors import RequestError

FARTHEST = 10 * 365 * 86_400.0
"""Seconds that it may be ahead: the dates that are told must stay ones that clients can read."""


class SteppedClock:
    """Another clock, and how far it was put forward. For any thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._ahead = clock, 0.0
        self._lock = threading.Lock()

    def __call__(self) -> float:
        """Seconds."""
        return self._clock() + self._ahead

    def advance(self, seconds: float) -> float:
        """Puts it forward; how far it is ahead now, in seconds. Raises RequestError past `FARTHEST`."""
        with self._lock:
            if self._ahead + seconds > FARTHEST:
                raise RequestError(
                    f"the clock is {self._ahead:.0f} s ahead; it may be {FARTHEST:.0f} s at most",
                    param="advance",
                )
            self._ahead += seconds
            return self._ahead
