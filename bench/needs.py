"""What a case needs of each server that is started for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Needs:
    """Attributes:
    slots: requests that are in flight at once.
    context: tokens of the longest of them.
    kv_tokens: the cache has room for this many tokens and no more; None is plenty.
    """

    slots: int
    context: int = 4096
    kv_tokens: int | None = None
