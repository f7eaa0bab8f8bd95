"""The sequences that wait: how long each is passed over, what each would reuse, and who is next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

import numpy as np

from sapwood.cache import PrefixCache
from sapwood.sched.columns import WaitingTable
from sapwood.sched.order import Order
from sapwood.sched.sequence import Sequence, Stretch
from sapwood.types import SeqId

LOOKUPS = 64
"""Waiting sequences whose prefix is looked up each time the queue is asked for."""

_NOBODY: Mapping[SeqId, int] = MappingProxyType({})


class WaitingQueue:
    """Asking for the order costs a sort of numbers and at most LOOKUPS lookups, however long the queue is.

    Lookups go round: the newest are first looked up, then those whose last lookup is the oldest. In a longer
    queue `cached` may thus be some steps old, which can cost a little reuse; ageing does not depend on it.
    """

    def __init__(self, cache: PrefixCache, order: Order, patience: int) -> None:
        self._cache = cache
        self._order = order
        self._patience = patience
        self._table = WaitingTable()
        self._latest: Sequence | None = None
        self._round: deque[Sequence] = deque()

    def __len__(self) -> int:
        return len(self._table)

    def add(self, sequence: Sequence) -> None:
        self._table.add(sequence, returning=False)
        self._cache.expect(sequence.namespace)
        if self._order.needs_cached and sequence.reads_cache:
            self._round.appendleft(sequence)
            if len(self._round) > 2 * len(self._table) + LOOKUPS:
                # Under a flood of requests that give up, the round may never get to those that left.
                self._round = deque(each for each in self._round if each.id in self._table)

    def put_back(self, sequence: Sequence) -> None:
        """A preempted sequence: it goes before all others, or under `priority` before those of its own."""
        self._table.add(sequence, returning=True)
        self._cache.expect(sequence.namespace)

    def remove(self, seq: SeqId) -> bool:
        """False if it is not here."""
        sequence = self._table.remove(seq)
        if sequence is not None:
            self._cache.expect_no_more(sequence.namespace)
        return sequence is not None

    def admit(self, sequence: Sequence) -> None:
        """It waits no more, as it runs, with its lease, from now on."""
        self.remove(sequence.id)
        self._latest = sequence

    def __iter__(self) -> Iterator[Sequence]:
        """In no order."""
        return self._table.sequences()

    @property
    def following(self) -> bool:
        """Whether anyone waited for a leader when last looked at."""
        return bool(self._table.column("until").any())

    @property
    def steady(self) -> bool:
        """Whether the order changes only when somebody comes, goes, or becomes overdue."""
        return self._order.steady

    def steps_in_order(self, running: Iterable[Sequence]) -> int:
        """Steps, in each of which these compute a token, in which nobody who waits becomes overdue before the last."""
        arrivals = np.sort([sequence.arrival for sequence in running])
        aging = len(arrivals) - np.searchsorted(arrivals, self._table.column("arrival"), side="right")
        left = self._patience - self._table.column("passed")
        rows = (aging > 0) & (left > 0)
        return int(np.min(-(-left[rows] // aging[rows]), initial=2**62))

    def looked_at(self) -> Iterator[Sequence]:
        """Whom an admission that seats nobody looks at, while nobody leads."""
        for left_out, sequence in enumerate(self.in_order(), start=1):
            yield sequence
            if self.ends_admission(sequence, left_out):
                return

    def ends_admission(self, sequence: Sequence, left_out: int) -> bool:
        """Whether nobody behind this one is looked at, which is left out like so many with it."""
        return self.at_front(sequence) or left_out == LOOKUPS

    def unmoved_first(self) -> Sequence | None:
        """One that was preempted and before which nobody can ever come, as it is the oldest; None without one."""
        return None if self._order.preempts or not len(self) else self._table.oldest_if_returning()

    def in_order(self, leaders: Mapping[SeqId, int] = _NOBODY) -> Iterator[Sequence]:
        """Who is to be admitted next; those that come out stay in the queue until removed.

        Who follows one of `leaders`, given with the tokens that each has committed, is passed over, however many
        they are; but nobody at the front, where passing over ends (`at_front`).
        """
        self._look_up()
        waiting = self._table.view(self._patience, self._latest)
        ordered = np.lexsort((waiting.sample, waiting.arrival, self._order.keys(waiting)))
        passed_over = self._table.following(leaders) & ~(waiting.returning | waiting.overdue)
        ordered = ordered[~passed_over[ordered]]
        sequences = waiting.sequences.copy()
        for row in ordered.tolist():
            yield sequences[row]

    def at_front(self, sequence: Sequence) -> bool:
        """Whether it must not be passed over any more."""
        return bool(self._table.value(sequence.id, "returning")) or self.passed(sequence.id) >= self._patience

    def passed(self, seq: SeqId) -> int:
        """Tokens computed, while this one waited, for requests that arrived later."""
        return self._table.value(seq, "passed")

    def follow(self, sequence: Sequence, stretch: Stretch | None) -> None:
        """It waits for this, or for nobody."""
        if stretch is None:
            self._table.set_stretch(sequence.id, 0, 0)
        else:
            self._table.set_stretch(sequence.id, stretch.leader, stretch.until)

    def returning(self) -> list[Sequence]:
        """Those that were preempted."""
        return self._table.returning()

    def best_priority(self) -> int:
        """The lowest number among those that wait; there must be one."""
        return int(self._table.column("priority").min())

    def charge(self, given: Iterable[tuple[Sequence, int]]) -> None:
        """Age everyone by the tokens that a step gives to sequences of requests that arrived later."""
        if not len(self._table):
            return
        pairs = np.array(sorted((sequence.arrival, tokens) for sequence, tokens in given), np.int64)
        arrivals, up_to = pairs[:, 0], np.concatenate([[0], np.cumsum(pairs[:, 1])])
        not_later = np.searchsorted(arrivals, self._table.column("arrival"), side="right")
        self._table.column("passed")[:] += up_to[-1] - up_to[not_later]

    def look_up_in_turn(self) -> None:
        """What asking for the order does to a longer queue; one that is looked up whole is as good when next asked."""
        if len(self._round) > LOOKUPS:
            self._look_up()

    def _look_up(self) -> None:
        left = min(LOOKUPS, len(self._round))
        kept = []
        while left and self._round:
            sequence = self._round.popleft()
            if sequence.id in self._table:
                matched = self._cache.match(sequence.namespace, sequence.tokens[: sequence.readable]).tokens
                self._table.set_cached(sequence.id, matched)
                kept.append(sequence)
                left -= 1
        self._round.extend(kept)
