"""Soft retention: a request asks that its prefix be kept longer than others. A wish, not a lease."""

from __future__ import annotations

import math
from dataclasses import dataclass

HIGHEST = 99


@dataclass(frozen=True, slots=True)
class Retention:
    """Keep before everything of a lower priority, until a time; after that, as if nothing had been asked.

    Args:
        priority: 0 .. 99, clamped; 0 asks for nothing.
        until: seconds of the caller's clock; inf never ends.
    """

    priority: int
    until: float = math.inf

    def __post_init__(self) -> None:
        object.__setattr__(self, "priority", max(0, min(HIGHEST, self.priority)))

    def holds(self, now: float) -> bool:
        return self.priority > 0 and now < self.until


def stronger(one: Retention | None, other: Retention | None) -> Retention | None:
    """Of two wishes for the same pages the higher priority wins, then the later end; fields never mix."""
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda retention: (retention.priority, retention.until))
