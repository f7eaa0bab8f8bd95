"""What is held for good in a captured run: leases that no request ends."""

from __future__ import annotations

import numpy as np

from sapwood.cache import Lease, Namespace, PrefixCache, Tokens
from sapwood.sched import Scheduler


class Holds:
    """Pins by name. What may be pinned the run has said; here the cache and the scheduler are told of it."""

    def __init__(self, cache: PrefixCache, scheduler: Scheduler) -> None:
        self._cache, self._scheduler = cache, scheduler
        self._leases: dict[str, Lease] = {}

    def try_pin(self, name: str, namespace: Namespace, tokens: Tokens, now: float, *, held: bool) -> bool:
        """Look a prompt up, and keep it if it was `held`; False if not all of its whole pages are there then."""
        self._cache.advance(now)
        lease = self._cache.lease(namespace, tokens)
        if not held:
            self._cache.release(lease)
            return True
        self._leases[name] = lease
        tables = [each.table for each in self._leases.values()]
        self._scheduler.make_room_for_pins(np.unique(np.concatenate([*tables, self._cache.public_pages])))
        return lease.matched == len(tokens) // self._cache.page_size * self._cache.page_size

    def unpin(self, name: str) -> bool:
        """False if it is not there."""
        lease = self._leases.pop(name, None)
        if lease is not None:
            self._cache.release(lease)
        return lease is not None
