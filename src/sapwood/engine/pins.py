"""Pins: leases that nobody's request ends. What they hold is not evicted, and there is a budget for them.

A pin holds all whole pages of its prompt, or does not come to be. What is missing must have been computed before,
by a request like any other (`EngineLoop.pin` does both).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sapwood.cache import Lease, Namespace, PageIds, PrefixCache, Tokens
from sapwood.engine.pin_moves import Move, Published, Tried, Unpinned
from sapwood.errors import NotFoundError, RequestError

MOST_PINS = 1024
"""Pins that share pages cost no budget, so their number has a limit of its own."""


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
        self._holders = np.zeros(cache.capacity_pages, np.int32)
        self._moves: list[Move] = []

    def all(self) -> tuple[Pin, ...]:
        """The oldest first."""
        return tuple(self._pins.values())

    def take_moves(self) -> list[Move]:
        """What was done since the last call, in order."""
        moves, self._moves = self._moves, []
        return moves

    def pages(self) -> PageIds:
        """What is held for good: by pins, or by public prefixes; each page once."""
        held = self._holders > 0
        held[self._cache.public_pages] = True
        return np.flatnonzero(held).astype(np.int32)

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
        """Raises RequestError if a pin of that id is there, or there are too many."""
        if len(self._pins) >= MOST_PINS:
            raise RequestError(
                f"there are {MOST_PINS} pins; no more are taken",
                code="pin_budget_exceeded",
                hint="unpin something",
            )
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
        self._check_quota(namespace, self.whole_pages(len(tokens)))
        lease = self._cache.lease(namespace, tokens)
        missing = self.whole_pages(len(tokens)) - lease.matched
        # What is not cached is in no pin, so the budget is known before anything is computed.
        asked = self._unheld(lease) + missing
        over = self.pinned_tokens + asked > self.budget
        held = not over and not missing
        self._moves.append(Tried(id, namespace, tokens, self._cache.now, held))
        if not held:
            self._cache.release(lease)
            if over:
                raise self._over(asked)
            return None
        self._leases[id] = lease
        self._holders[lease.table] += 1
        self.pinned_tokens += asked
        pin = self._pins[id] = Pin(id, namespace, len(tokens), lease.matched)
        return pin

    def _check_quota(self, namespace: Namespace, tokens: int) -> None:
        quota = self._cache.quota(namespace)
        if quota is not None and tokens > quota:
            raise RequestError(
                f"the prompt has {tokens} tokens to be pinned; its tenant may keep {quota}",
                param="prompt",
                code="pin_budget_exceeded",
                hint="pin less, or raise max_hot_tokens in the server's tenants file",
            )

    def unpin(self, id: str) -> Pin:
        """Let go; what it held stays cached as any other. Raises NotFoundError."""
        if id not in self._pins:
            raise NotFoundError(f"there is no pin {id[:100]!r}", param="id", code="pin_not_found")
        lease = self._leases.pop(id)
        self._holders[lease.table] -= 1
        self.pinned_tokens -= self._unheld(lease)
        self._cache.release(lease)
        self._moves.append(Unpinned(id))
        return self._pins.pop(id)

    def publish(self, namespace: Namespace, prefixes: Sequence[Tokens]) -> None:
        """Hold cached prompts for good, for all to read (`PrefixCache.publish`); they count towards the budget."""
        self._cache.publish(namespace, prefixes)
        self.budget -= len(self._cache.public_pages) * self._cache.page_size
        self._moves.append(Published(tuple(prefixes)))

    def let_go(self, pins: Iterable[Pin]) -> None:
        """Unpin those that are still there, whoever has their ids by now."""
        for pin in pins:
            if self._pins.get(pin.id) is pin:
                self.unpin(pin.id)

    def clear(self) -> None:
        for id in list(self._pins):
            self.unpin(id)

    def _unheld(self, lease: Lease) -> int:
        """Tokens of it whose pages no pin holds."""
        return int(np.count_nonzero(self._holders[lease.table] == 0)) * self._cache.page_size

    def _over(self, asked: int) -> RequestError:
        return RequestError(
            f"the pin needs {asked} more tokens; pins hold {self.pinned_tokens} of the {self.budget} they may hold",
            param="prompt",
            code="pin_budget_exceeded",
            hint="unpin something, or allow more with --pin-share (pin_share in Python)",
        )
