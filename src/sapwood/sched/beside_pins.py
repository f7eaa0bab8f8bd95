"""Whether a sequence can reach its end beside what pins hold for good, so that whoever has begun always finishes.

A sequence that runs alone has all pages but the pinned ones, and of these it reads what its own prefix has.
Open-ended answers, for which as many tokens were asked for as fit, end where this room does.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from sapwood.cache import PageIds, PrefixCache
from sapwood.sched.sequence import Sequence


def make_room(cache: PrefixCache, begun: Collection[Sequence], pinned: PageIds) -> Sequence | None:
    """See that all that have begun fit beside these pages; returns one that cannot, having changed nothing."""
    rooms = [(sequence, _room(cache, sequence, pinned)) for sequence in begun]
    for sequence, room in rooms:
        if not _fits(sequence, room):
            return sequence
    for sequence, room in rooms:
        _end_within(sequence, room)
    return None


def reaches_its_end(
    cache: PrefixCache, sequence: Sequence, running: Collection[Sequence], limit: int
) -> bool:
    """Of one that has no lease yet, and would read `limit` cached tokens at most. Pins are who else has a lease."""
    pinned = cache.held_beyond({s.lease for s in running if s.lease is not None})
    if not len(pinned):
        return True
    room = _room(cache, sequence, pinned)
    if sequence.most_computed > room:
        # What the pins hold of its own prefix takes no room; only a lease names these pages.
        sequence.lease = cache.lease(sequence.namespace, sequence.tokens, limit)
        room = _room(cache, sequence, pinned)
        cache.release(sequence.lease)
        sequence.lease = None
    if not _fits(sequence, room):
        return False
    _end_within(sequence, room)
    return True


def _room(cache: PrefixCache, sequence: Sequence, pinned: PageIds) -> int:
    """Tokens that it could come to if all but these pages were its own."""
    shared = 0
    if sequence.lease is not None and sequence.reads_cache:
        shared = int(np.isin(sequence.lease.table, pinned).sum())
        shared = min(shared, sequence.readable // cache.page_size)  # So much it finds if it is preempted.
    return (cache.capacity_pages - len(pinned) + shared) * cache.page_size


def _fits(sequence: Sequence, room: int) -> bool:
    return sequence.most_computed <= room or (sequence.open_ended and len(sequence) <= room)


def _end_within(sequence: Sequence, room: int) -> None:
    if sequence.most_computed > room:
        sequence.max_len = room + 1
