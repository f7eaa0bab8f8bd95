"""The sequences that wait: how long each is passed over, what each would reuse, and who is next."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import accumulate

from sapwood.cache import PrefixCache
from sapwood.sched.order import Candidate, Order, SortKey, front, is_front
from sapwood.sched.sequence import Sequence
from sapwood.types import SeqId

LOOKUPS = 64
"""Waiting sequences whose prefix is looked up each time the queue is asked for."""


class WaitingQueue:
    """Asking for the order costs a key per sequence and at most LOOKUPS lookups, however long the queue is.

    Lookups go round: the newest are first looked up, then those whose last lookup is the oldest. In a longer
    queue `cached` may thus be some steps old, which can cost a little reuse; ageing does not depend on it.
    """

    def __init__(self, cache: PrefixCache, order: Order) -> None:
        self._cache = cache
        self._order = order
        self._new: dict[SeqId, Sequence] = {}
        self._returning: dict[SeqId, Sequence] = {}
        self._round: deque[Sequence] = deque()

    def __len__(self) -> int:
        return len(self._new) + len(self._returning)

    def add(self, sequence: Sequence) -> None:
        self._new[sequence.id] = sequence
        if self._order.needs_cached and sequence.reads_cache:
            self._round.appendleft(sequence)

    def put_back(self, sequence: Sequence) -> None:
        """A preempted sequence: it goes to the front, whatever the policy."""
        self._returning[sequence.id] = sequence

    def remove(self, seq: SeqId) -> bool:
        """False if it is not here."""
        return (self._new.pop(seq, None) or self._returning.pop(seq, None)) is not None

    def in_order(self) -> Iterator[Sequence]:
        """Who is to be admitted next; those that come out stay in the queue until removed."""
        self._look_up()
        heap = [(front(*s.age), s.id, s) for s in self._returning.values()]
        heap += [(self._key(s), s.id, s) for s in self._new.values()]
        heapq.heapify(heap)
        while heap:
            yield heapq.heappop(heap)[2]

    def at_front(self, sequence: Sequence) -> bool:
        """Whether it must not be passed over any more."""
        return sequence.id in self._returning or is_front(self._key(sequence))

    def charge(self, given: Iterable[tuple[Sequence, int]]) -> None:
        """Age everyone by the tokens that a step gives to sequences of requests that arrived later."""
        if not self._new or not self._order.needs_passed:
            return
        ranked = sorted((sequence.arrival, tokens) for sequence, tokens in given)
        arrivals = [arrival for arrival, _ in ranked]
        up_to = [0, *accumulate(tokens for _, tokens in ranked)]
        for sequence in self._new.values():
            if sequence.arrival < arrivals[-1]:
                sequence.passed += up_to[-1] - up_to[bisect_right(arrivals, sequence.arrival)]

    def _key(self, sequence: Sequence) -> SortKey:
        return self._order.key(
            Candidate(
                arrival=sequence.arrival,
                sample=sequence.sample,
                cached=sequence.cached,
                passed=sequence.passed,
                priority=sequence.request.priority,
            )
        )

    def _look_up(self) -> None:
        left = min(LOOKUPS, len(self._round))
        kept = []
        while left and self._round:
            sequence = self._round.popleft()
            if sequence.id in self._new:
                sequence.cached = self._cache.match(sequence.namespace, sequence.tokens[:-1]).tokens
                kept.append(sequence)
                left -= 1
        self._round.extend(kept)
