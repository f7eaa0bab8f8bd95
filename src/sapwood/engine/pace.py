"""How long a prompt token takes to compute, of late: what a hit saves."""

from __future__ import annotations

_FEWEST_TOKENS = 32
"""Steps that read fewer tell little of reading."""

_WEIGHT = 0.1


class Pace:
    """A running mean over the steps that read prompts, plain over the first few. Seconds are the caller's."""

    def __init__(self) -> None:
        self._steps = 0
        self._seconds_per_token = 0.0

    def saw(self, read: int, seconds: float, decoded: int = 0) -> None:
        """A step computed so many tokens in that time. One that decodes more than it reads does not count."""
        if read < max(_FEWEST_TOKENS, decoded) or seconds <= 0:
            return
        self._steps += 1
        weight = max(_WEIGHT, 1 / self._steps)
        self._seconds_per_token += weight * (seconds / (read + decoded) - self._seconds_per_token)

    def seconds_for(self, tokens: int) -> float | None:
        """None until a prompt has been read; nothing takes no time."""
        if tokens == 0:
            return 0.0
        return tokens * self._seconds_per_token if self._steps else None
