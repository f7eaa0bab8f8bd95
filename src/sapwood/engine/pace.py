"""How long a prompt token takes to compute, of late: what a hit saves."""

from __future__ import annotations

_FEWEST_TOKENS = 32
"""Steps of fewer tokens decode more than they read, and tell nothing of reading."""

_WEIGHT = 0.1


class Pace:
    """A running mean over the steps that read prompts, plain over the first few. Seconds are the caller's."""

    def __init__(self) -> None:
        self._steps = 0
        self._seconds_per_token = 0.0

    def saw(self, tokens: int, seconds: float) -> None:
        """A step computed so many tokens in that time."""
        if tokens < _FEWEST_TOKENS or seconds <= 0:
            return
        self._steps += 1
        weight = max(_WEIGHT, 1 / self._steps)
        self._seconds_per_token += weight * (seconds / tokens - self._seconds_per_token)

    def seconds_for(self, tokens: int) -> float | None:
        """None until a prompt has been read; nothing takes no time."""
        if tokens == 0:
            return 0.0
        return tokens * self._seconds_per_token if self._steps else None
