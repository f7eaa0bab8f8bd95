"""Steps in which all that happens is that everyone who runs draws a token, taken without orders for each.

For whoever knows beforehand what will be drawn, and that none of it ends an answer: a simulation. What is left of
`schedule` and `apply` in such a step is to take pages for the tokens, in the order of rank, and to let those that
wait age; all else would find things as it left them. That is so while

    everyone who runs has read its prompt and lacks one token, and all of them fit into one step;
    nobody is drafted for, and nobody who waits may push back one who runs;
    nobody who waits can be seated: no seat or budget is left, or who is looked at lacks more pages than there are.

The last does not change on the way. Growth takes room, and nothing gives any: what it evicts becomes room for
nobody else, and whoever could have read it lacks so much more. Who is looked at is known where the order changes only
as somebody becomes overdue (then the coast ends), or where the first in line came back from a preemption and is the
oldest of all; else all that wait have to lack pages.

A step that finds no page is not taken: `schedule`, called at the same time, then preempts as it would have.
"""

from __future__ import annotations

from collections.abc import Sequence as Many

import numpy as np
from numpy.typing import NDArray

from sapwood.cache import PrefixCache, Tokens
from sapwood.errors import OutOfPagesError
from sapwood.sched.sequence import Sequence
from sapwood.sched.waiting import WaitingQueue
from sapwood.types import SeqId

_GROWN_AHEAD = 64
"""Steps for which pages are taken at once where enough are free; what is not used is given back."""


class Coast:
    """Call `begin`, then `drew`, for each step, as long as `left`; and `end` in any case, before anything else."""

    def __init__(
        self, cache: PrefixCache, queue: WaitingQueue, running: Many[Sequence], *, looking: bool
    ) -> None:
        """`running` in the order of rank; `looking`: whether those that wait are looked at in each step."""
        self._cache = cache
        self._queue = queue
        self._running = running
        self._looking = looking
        self._lengths = np.array([len(sequence) for sequence in running], np.int64)
        self._covered = np.array([_covered(sequence) for sequence in running], np.int64)
        self._had = self._covered.tolist()
        self.steps = 0
        self.left = min(sequence.max_len - len(sequence) for sequence in running) - 1
        """Steps after which somebody's last one comes, or the order of those that wait may change."""
        if looking:
            self.left = min(self.left, queue.steps_in_order(running))

    @property
    def sequences(self) -> list[SeqId]:
        return [sequence.id for sequence in self._running]

    @property
    def starts(self) -> NDArray[np.int64]:
        """shape (running,): where the token is that each computes in the next step."""
        return self._lengths - 1

    def begin(self, now: float) -> bool:
        """See that everyone has a page for its token; False, and the step is not taken, if one is missing."""
        self._cache.advance(now)
        if (self._lengths <= self._covered).all():
            return True
        ahead = min(self.left, _GROWN_AHEAD)
        if self._pages(self._lengths + ahead - self._covered) * self._cache.page_size <= self._cache.free:
            self._grow(np.arange(len(self._running)), ahead)
            return True
        try:
            self._grow(np.flatnonzero(self._lengths > self._covered), 0)
        except OutOfPagesError:
            return False
        return True

    def drew(self) -> None:
        """Everyone has drawn a token."""
        if self._looking:
            self._queue.look_up_in_turn()
        self._lengths += 1
        self.steps += 1
        self.left -= 1

    def end(self, drawn: Many[Tokens]) -> None:
        """Hand over what each drew, `steps` tokens, in the order of `sequences`."""
        for sequence, tokens, had in zip(self._running, drawn, self._had, strict=True):
            assert sequence.lease is not None
            assert len(tokens) == self.steps
            # The last token is not computed yet; pages for more were taken ahead.
            self._cache.shrink(sequence.lease, max(had, len(sequence) + self.steps - 1))
            sequence.extend(tokens)
            sequence.computed += self.steps
        if self.steps:
            self._queue.charge((sequence, self.steps) for sequence in self._running)

    def _grow(self, rows: NDArray[np.intp], ahead: int) -> None:
        for row in rows.tolist():
            sequence = self._running[row]
            assert sequence.lease is not None
            self._cache.grow(sequence.lease, int(self._lengths[row]) + ahead)
            self._covered[row] = sequence.lease.covered

    def _pages(self, tokens: NDArray[np.int64]) -> int:
        return int((-(-tokens.clip(min=0) // self._cache.page_size)).sum())


def _covered(sequence: Sequence) -> int:
    assert sequence.lease is not None
    return sequence.lease.covered


def coast_of(
    cache: PrefixCache, queue: WaitingQueue, running: Many[Sequence], budget: int, seats: int
) -> Coast | None:
    """`running` in the order of rank. Whether they are drafted for, or pushed back, is the caller's to know."""
    if not 0 < len(running) <= budget or not all(map(_goes_on_drawing, running)):
        return None
    looking = len(queue) > 0 and len(running) < min(budget, seats)
    if looking and not _nobody_fits(cache, queue):
        return None
    return Coast(cache, queue, running, looking=looking)


def _goes_on_drawing(sequence: Sequence) -> bool:
    """Whether all that it does in the next step is draw a token, which is not its last."""
    return sequence.gap == 1 and not sequence.reading and len(sequence) + 1 < sequence.max_len


def _nobody_fits(cache: PrefixCache, queue: WaitingQueue) -> bool:
    """Whether none of those that wait could be seated although seats are free; False where that is not plain."""
    if queue.steady:
        looked_at = list(queue.looked_at())
        if not all(_lacks_pages(cache, sequence) for sequence in looked_at):
            return False
        for sequence in looked_at:
            queue.follow(sequence, None)  # As nobody leads; who is not looked at may still be said to follow.
        return True
    if queue.following:
        return False
    first = queue.unmoved_first()
    if first is not None:
        return _lacks_pages(cache, first)
    return all(_lacks_pages(cache, sequence) for sequence in queue)


def _lacks_pages(cache: PrefixCache, sequence: Sequence) -> bool:
    limit = sequence.readable
    matched = cache.match(sequence.namespace, sequence.tokens[:limit]).tokens
    return sequence.wanted - matched > cache.room_beside(sequence.namespace, sequence.tokens, limit)
