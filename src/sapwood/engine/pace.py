"""How long a prompt token takes to compute, of late: what a hit saves."""

from __future__ import annotations

_FEWEST_TOKENS = 32
"""Steps of fewer tokens decode more than they read, and tell nothing of reading."""

_WEIGHT = 0.1


class Pace:
    """A running mean over the steps that read prompts. Seconds are the caller's."""

    def __init__(self) -> None:
        self._seconds_per_token: float | None = None

    def saw(self, tokens: int, seconds: float) -> None:
        """A step computed so many tokens in that time."""
        if tokens < _FEWEST_TOKENS or seconds <= 0:
            return
        pace, before = seconds / tokens, self._seconds_per_token
        self._seconds_per_token = pace if before is None else before + _WEIGHT * (pace - before)

    def seconds_for(self, tokens: int) -> float | None:
        """None until a prompt has been read; nothing takes no time."""
        if tokens == 0:
            return 0.0
        return None if self._seconds_per_token is None else tokens * self._seconds_per_token
