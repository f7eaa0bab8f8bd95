"""What is simulated: replicas of one engine, and who gets what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sapwood.config import CacheConfig, SchedulerConfig
from sapwood.errors import UsageError
from sapwood.routing import Router


@dataclass(frozen=True, slots=True)
class Setup:
    """Raises UsageError for one that cannot be."""

    capacity_tokens: int
    """Of each replica's pool; whole pages of it are used."""
    cache: CacheConfig = field(default_factory=CacheConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    replicas: int = 1
    router: Callable[[], Router] | None = None
    """Makes a router for one run; None takes turns."""
    context: int | None = None
    """Longest sequence that the model reads; None sets no limit."""

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise UsageError(f"there are {self.replicas} replicas; there must be at least 1")
        if self.pages < 1:
            raise UsageError(
                f"the pool holds {self.capacity_tokens} tokens; it must hold a page of {self.cache.page_size}"
            )

    @property
    def pages(self) -> int:
        return self.capacity_tokens // self.cache.page_size

    @property
    def longest(self) -> int:
        """Tokens of prompt and answer that the model may read."""
        limits = [limit for limit in (self.context, self.scheduler.max_context) if limit]
        return min(limits, default=2**62)
