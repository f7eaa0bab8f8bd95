"""Whom to preempt so that a better priority fits: the smallest sufficient set, or nobody."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from sapwood.cache import Lease, PageIds, PrefixCache
from sapwood.sched.sequence import Sequence
from sapwood.types import SeqId


class Freed:
    """What preempting some of those that run would free; each set is asked of the cache once.

    Good until a lease changes.
    """

    def __init__(self, cache: PrefixCache) -> None:
        self._cache = cache
        self._known: dict[frozenset[SeqId], PageIds] = {}

    def by(self, preempted: Collection[Sequence]) -> PageIds:
        """Pages that only these hold."""
        key = frozenset(sequence.id for sequence in preempted)
        if key not in self._known:
            self._known[key] = self._cache.freed_by({_lease(sequence) for sequence in preempted})
        return self._known[key]


class Displacement:
    """Room and seats that one who waits would find if some of those that run were preempted."""

    def __init__(
        self,
        cache: PrefixCache,
        sequence: Sequence,
        running: Collection[Sequence],
        seats: int,
        freed: Freed,
    ) -> None:
        """`sequence` wants in; at most `seats` may run in all."""
        self._cache = cache
        self._freed = freed
        self._running = running
        self._seats = seats
        self._wanted = sequence.wanted
        readable = sequence.readable
        matched = cache.match(sequence.namespace, sequence.tokens[:readable]).tokens
        evictable = cache.room() - cache.room_beside(sequence.namespace, sequence.tokens, readable)
        self._growth = {s.id: max(0, len(s) - _lease(s).covered) for s in running if s.gap == 1}
        self._held_for_it = matched - evictable
        self._held_by_running = self._pages_held(sequence)

    def victims(self, worse: list[Sequence]) -> list[Sequence] | None:
        """The fewest to preempt, from the first on; None if even all of them would not make room.

        Those before the last that turn out not to be needed are spared, the last of them first.
        """
        if not self.suffices(worse):
            return None
        chosen: list[Sequence] = []
        for sequence in worse:
            if self.suffices(chosen):
                break
            chosen.append(sequence)
        for spared in chosen[-2::-1]:
            others = [sequence for sequence in chosen if sequence is not spared]
            if self.suffices(others):
                chosen = others
        return chosen

    def suffices(self, preempted: list[Sequence]) -> bool:
        if len(self._running) - len(preempted) >= self._seats:
            return False
        gone = {sequence.id for sequence in preempted}
        freed = self._freed.by(preempted)
        released = int(np.isin(self._held_by_running, freed).sum()) * self._cache.page_size
        # Those that stay decode in this step, and take a page now and then.
        growth = sum(self._pages(tokens) for seq, tokens in self._growth.items() if seq not in gone)
        needed = self._pages(self._wanted - self._held_for_it + released) + growth
        return (needed - len(freed)) * self._cache.page_size <= self._cache.room()

    def _pages_held(self, sequence: Sequence) -> PageIds:
        """Those of its match that leases hold now; none if a lease that nobody here has (a pin) holds them all."""
        held = self._held_for_it
        for runs in self._running:
            if _lease(runs).committed >= held and sequence.shared_with(runs, held) == held:
                return _lease(runs).table[: held // self._cache.page_size]
        return np.empty(0, np.int32)

    def _pages(self, tokens: int) -> int:
        return -(-tokens // self._cache.page_size)


def _lease(sequence: Sequence) -> Lease:
    assert sequence.lease is not None
    return sequence.lease
