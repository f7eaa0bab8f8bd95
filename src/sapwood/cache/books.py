"""What the cache says about itself, in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Books:
    """Where the pages are. `free + tree + private == capacity`, always; `leased` is a part of `tree`."""

    free: int
    """Pages that hold nothing."""
    tree: int
    """Pages that the index holds."""
    leased: int
    """Pages of the index that some lease pins; the rest of `tree` can be evicted."""
    private: int
    """Pages of one lease each, not committed yet."""
    capacity: int
    """All pages."""
    evicted_tokens: int
    """Tokens evicted since the start; a flush does not count."""
    cached_tokens: int
    """Tokens whose KV the index holds now: `tree` in tokens."""

    @property
    def evictable(self) -> int:
        """Pages that can be taken from the index at once."""
        return self.tree - self.leased


@dataclass(frozen=True, slots=True)
class Flushed:
    """What a flush did, in tokens of the index."""

    flushed_tokens: int
    """Freed at once."""
    kept_tokens: int
    """Kept for the leases that read them until those are released; they match no more, but for public prefixes."""
