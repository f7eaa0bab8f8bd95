"""Pins: leases that nobody's request ends. What they hold is not evicted, and there is a budget for them.

A pin holds all whole pages of its prompt, or does not come to be. What is missing must have been computed before,
by a request like any other (`EngineLoop.pin` does both).
"""

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
    """Pages that several pins share count once towards the budget, which is in tokens.

    Attributes:
        budget: most tokens that all pins may hold.
        pinned_tokens: that they hold now.
    """

    def __init__(self, cache: PrefixCache, budget: int) -> None:
        self.budget = budget
        self.pinned_tokens = 0
        self._cache = cache
        self._pins: dict[str, Pin] = {}
        self._leases: dict[str, Lease] = {}

    def all(self) -> tuple[Pin, ...]:
        """The oldest first."""
        return tuple(self._pins.values())

    def whole_pages(self, tokens: int) -> int:
        """Of a prompt of that many tokens, those in whole pages."""
        return tokens // self._cache.page_size * self._cache.page_size

    def check_length(self, tokens: int) -> None:
        """What a prompt's length alone forbids. Changes nothing, from any thread.

        Raises RequestError if it is over the budget by itself, or fills no page.
        """
        whole = self.whole_pages(tokens)
        if whole > self.budget:
            raise RequestError(
                f"the prompt has {whole} tokens to be pinned; all pins together may hold {self.budget}",
                param="prompt",
                code="pin_budget_exceeded",
                hint="pin less, or allow more with --pin-share (pin_share in Python)",
            )
        if not whole:
            raise RequestError(
                f"the prompt has {tokens} tokens, less than one page of {self._cache.page_size};"
                " only whole pages can be pinned",
                param="prompt",
                hint="pin a longer prompt, or start the server with a smaller --page-size",
            )

    def check_id(self, id: str) -> None:
        """Raises RequestError if a pin of that id is there."""
        if id in self._pins:
            raise RequestError(
                f"a pin with id {id!r} is there already", param="id", hint="unpin it, or choose another id"
            )

    def pin(self, id: str, namespace: Namespace, tokens: Tokens) -> Pin | None:
        """Hold all whole pages of a prompt, or nothing: None if not all of them are cached.

        Raises RequestError, and holds nothing, if the id is in use or the budget would be exceeded.
        """
        self.check_id(id)
        self.check_length(len(tokens))
        lease = self._cache.lease(namespace, tokens)
        missing = self.whole_pages(len(tokens)) - lease.matched
        # What is not cached is in no pin, so the budget is known before anything is computed.
        after = self._held([*self._leases.values(), lease]) + missing
        if after > self.budget or missing:
            self._cache.release(lease)
            if after > self.budget:
                raise self._over(after - self.pinned_tokens)
            return None
        self._leases[id], self.pinned_tokens = lease, after
        pin = self._pins[id] = Pin(id, namespace, len(tokens), lease.matched)
        return pin

    def unpin(self, id: str) -> Pin:
        """Let go; what it held stays cached as any other. Raises NotFoundError."""
        if id not in self._pins:
            raise NotFoundError(f"there is no pin {id[:100]!r}", param="id", code="pin_not_found")
        self._cache.release(self._leases.pop(id))
        self.pinned_tokens = self._held(self._leases.values())
        return self._pins.pop(id)

    def let_go(self, pins: Iterable[Pin]) -> None:
        """Unpin those that are still there, whoever has their ids by now."""
        for pin in pins:
            if self._pins.get(pin.id) is pin:
                self.unpin(pin.id)

    def clear(self) -> None:
        for id in list(self._pins):
            self.unpin(id)

    def _held(self, leases: Iterable[Lease]) -> int:
        tables = [lease.table for lease in leases]
        return len(np.unique(np.concatenate(tables))) * self._cache.page_size if tables else 0

    def _over(self, asked: int) -> RequestError:
        return RequestError(
            f"the pin needs {asked} more tokens; pins hold {self.pinned_tokens} of the {self.budget} they may hold",
            param="prompt",
            code="pin_budget_exceeded",
            hint="unpin something, or allow more with --pin-share (pin_share in Python)",
        )
