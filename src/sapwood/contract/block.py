"""The stretches of a prompt that a provider's cache rules speak of."""

from __future__ import annotations

from dataclasses import dataclass

LEVELS = ("tools", "system", "messages")
"""The parts of a prompt; a setting of one is part of the keys of its own boundaries and of the levels after it."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a prompt (a tool, a system text, a content part), in prompt order.

    Attributes:
        end: tokens of the rendered prompt up to and including it.
        level: `tools`, `system` or `messages`: which settings are part of its key.
        ttl: the time-to-live that a marker on it asks for in seconds, or None where it has no marker.
        automatic: whether the marker is one that the rules set, not the client.
    """

    end: int
    level: str
    ttl: float | None = None
    automatic: bool = False

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise ValueError(f"the level is {self.level!r}; it must be one of {', '.join(LEVELS)}")
