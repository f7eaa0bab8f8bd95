"""In-flight sharing: who waits a step because another is computing just what it needs next.

A leader is a sequence that reads in this step; a follower waits, and finds the leader's commits in the cache.
Nothing is remembered from step to step, so nothing has to be handed over: when a leader is aborted, fails or
is preempted, it no longer runs, and the first of its followers is admitted and leads the others.

A follower waits for one step per leader. Budget is left for admission only when everyone who reads has got
all that it lacks; so a leader is done after the step in which it is followed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sapwood.cache import PrefixCache
from sapwood.sched.sequence import Sequence

_WORTHWHILE_TOKENS = 16
"""A shorter stretch is computed twice rather than waited for, unless it is all that a sequence lacks."""

_PATIENCE_LENGTHS = 4
"""A sequence follows no more once the stretches it waited for sum to this many times its own length.

When all leaders do commit, they sum to less than its length once. So this bounds what leaders that fail, or
whose pages are evicted at once, can cost.
"""


@dataclass(frozen=True, slots=True)
class Overlap:
    """What this step computes for another, of what a sequence needs next. In tokens, whole pages."""

    tokens: int = 0
    """From the end of the cached prefix on."""
    lacking: int = 0
    """From there to the end of what it could ever reuse."""

    @property
    def worthwhile(self) -> bool:
        return self.tokens > 0 and self.tokens >= min(_WORTHWHILE_TOKENS, self.lacking)


class InFlight:
    """The leaders of one step.

    An overlap costs one token's comparison per leader, one of whole prompts for each that agrees there, and
    one lookup in the cache if any of these agrees further.
    """

    def __init__(self, cache: PrefixCache) -> None:
        self._cache = cache
        self._leaders: list[Sequence] = []

    def add(self, sequence: Sequence) -> None:
        """A sequence that is part of this step; it leads if what it reads will be committed."""
        if sequence.reading and self._commits(sequence):
            self._leaders.append(sequence)

    def overlap(self, sequence: Sequence) -> Overlap:
        """The longest over all leaders."""
        if not sequence.reads_cache:
            return Overlap()
        shared = max((self._shared(leader, sequence) for leader in self._leaders), default=0)
        if shared == 0:
            return Overlap()
        reusable = sequence.tokens[:-1]  # The last token is always computed.
        matched = self._cache.match(sequence.namespace, reusable).tokens
        return Overlap(max(0, shared - matched), self._whole_pages(len(reusable)) - matched)

    def _commits(self, leader: Sequence) -> bool:
        """After a flush, what a sequence commits is not stored; one that was committing is up to date."""
        assert leader.lease is not None
        return leader.lease.committed == self._whole_pages(leader.computed)

    def _shared(self, leader: Sequence, sequence: Sequence) -> int:
        """Tokens of their common prefix, in whole pages; 0 if the leader has committed all of it."""
        assert leader.lease is not None
        length = min(len(leader), len(sequence) - 1)
        first = leader.lease.committed + self._cache.page_size  # Ends the first page it will commit.
        if first > length or leader.namespace != sequence.namespace:
            return 0
        theirs, own = leader.tokens[:length], sequence.tokens[:length]
        if theirs[first - 1] != own[first - 1]:
            return 0
        differs = theirs != own
        at = int(np.argmax(differs))
        shared = self._whole_pages(at if differs[at] else length)
        return shared if shared >= first else 0

    def _whole_pages(self, tokens: int) -> int:
        return tokens // self._cache.page_size * self._cache.page_size


def may_follow(sequence: Sequence) -> bool:
    """Whether it has not yet waited for too much."""
    return sequence.followed < _PATIENCE_LENGTHS * len(sequence)
