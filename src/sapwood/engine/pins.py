"""Pins: leases that nobody's request ends. What they hold is not evicted, and there is a budget for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from sapwood.cache import Lease, Namespace, PrefixCache
from sapwood.cache.keys import Tokens
from sapwood.errors import NotFoundError, RequestError


@dataclass(frozen=True, slots=True)
class Pin:
    """What is held, in tokens."""

    id: str
    namespace: Namespace
    prompt_tokens: int
    """That were asked for."""
    pinned_tokens: int
    """That are held: whole pages."""


class Pins:
    """Pages that several pins share count once towards the budget, which is in tokens."""

    def __init__(self, cache: PrefixCache, budget: int) -> None:
        self.budget = budget
        self._cache = cache
        self._pins: dict[str, Pin] = {}
        self._leases: dict[str, Lease] = {}

    @property
    def pinned_tokens(self) -> int:
        """That all pins hold together."""
        return self._held(self._leases.values())

    def all(self) -> tuple[Pin, ...]:
        """The oldest first."""
        return tuple(self._pins.values())

    def check_length(self, tokens: int) -> None:
        """Raises RequestError if a prompt of that length is over the budget by itself. Changes nothing."""
        whole = tokens // self._cache.page_size * self._cache.page_size
        if whole > self.budget:
            raise self._over(whole, 0)

    def pin(self, id: str, namespace: Namespace, tokens: Tokens) -> Pin:
        """Hold the cached prefix of a prompt.

        Raises RequestError, and holds nothing, if the id is in use or the budget would be exceeded.
        """
        if id in self._pins:
            raise RequestError(f"a pin with id {id!r} is there already; ids must be unique", param="id")
        before = self.pinned_tokens
        lease = self._cache.lease(namespace, tokens)
        after = self._held([*self._leases.values(), lease])
        if after > self.budget:
            self._cache.release(lease)
            raise self._over(after - before, before)
        self._leases[id] = lease
        self._pins[id] = Pin(id, namespace, len(tokens), lease.matched)
        return self._pins[id]

    def unpin(self, id: str) -> Pin:
        """Let go; what it held stays cached as any other. Raises NotFoundError."""
        if id not in self._pins:
            raise NotFoundError(f"there is no pin {id[:100]!r}", param="id", code="pin_not_found")
        self._cache.release(self._leases.pop(id))
        return self._pins.pop(id)

    def clear(self) -> None:
        for id in list(self._pins):
            self.unpin(id)

    def _held(self, leases: Iterable[Lease]) -> int:
        tables = [lease.table for lease in leases]
        return len(np.unique(np.concatenate(tables))) * self._cache.page_size if tables else 0

    def _over(self, asked: int, held: int) -> RequestError:
        return RequestError(
            f"the pin needs {asked} more tokens; pins hold {held} of their budget of {self.budget}",
            param="prompt",
            code="pin_budget_exceeded",
            hint="unpin something, or start the server with a larger --pin-share",
        )
