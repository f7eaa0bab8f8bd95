"""In-flight sharing: who waits a step because another is computing just what it needs next.

A leader is a sequence that reads in this step; a follower waits, and finds the leader's commits in the cache.
Nothing is remembered from step to step, so nothing has to be handed over: when a leader is aborted, fails or
is preempted, it no longer runs, and the first of its followers is admitted and leads the others.

A step in which one follows brings it nearer: what its leader computes in it is committed, and matched from
then on. So what a follower waits for sums to its own length at most, however the budget is cut (`share`),
unless leaders fail or their commits are evicted at once; `may_follow` bounds these. A long leader is followed
through many steps, and in none of them could the follower have read the shared stretch for less: one that has
yet to read what the follower finds cached leads only if this is no more than what it then reads for both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sapwood.cache import PrefixCache
from sapwood.sched.sequence import Sequence
from sapwood.types import SeqId

_WORTHWHILE_TOKENS = 16
"""A shorter stretch is computed twice rather than waited for, unless it is all that a sequence lacks."""

_PATIENCE_LENGTHS = 4
"""A sequence follows no more once what leaders computed for it sums to this many times its own length."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """What this step computes for another, of what a sequence needs next. In tokens, whole pages."""

    tokens: int = 0
    """From the end of the cached prefix on."""
    lacking: int = 0
    """From there to the end of what it could ever reuse."""
    leader: SeqId | None = None
    """Who computes it."""

    @property
    def worthwhile(self) -> bool:
        return self.tokens > 0 and self.tokens >= min(_WORTHWHILE_TOKENS, self.lacking)


class InFlight:
    """The leaders of one step.

    An overlap costs one token's comparison per leader, and one of whole prompts for each that agrees there.
    """

    def __init__(self, cache: PrefixCache, sequences: Iterable[Sequence]) -> None:
        self._cache = cache
        self._leaders: list[Sequence] = []
        for sequence in sequences:
            self.add(sequence)

    def add(self, sequence: Sequence) -> None:
        """A sequence that is part of this step; it leads if what it reads will be committed."""
        if sequence.reading and self._commits(sequence):
            self._leaders.append(sequence)

    def overlap(self, sequence: Sequence, matched: int) -> Overlap:
        """The longest over all leaders. The cache holds `matched` tokens of the sequence, of all but the last."""
        if not sequence.reads_cache:
            return Overlap()
        lacking = self._whole_pages(len(sequence) - 1) - matched
        longest = Overlap()
        for leader in self._leaders:
            ahead = self._shared(leader, sequence) - matched
            if ahead > longest.tokens and ahead >= matched - _committed(leader):
                longest = Overlap(ahead, lacking, leader.id)
        return longest

    def _commits(self, leader: Sequence) -> bool:
        """After a flush, what a sequence commits is not stored; one that was committing is up to date."""
        return _committed(leader) == self._whole_pages(leader.computed)

    def _shared(self, leader: Sequence, sequence: Sequence) -> int:
        """Tokens of their common prefix, in whole pages; 0 if the leader has committed all of it."""
        first = _committed(leader) + self._cache.page_size  # Ends the first page it will commit.
        if first > min(len(leader), len(sequence) - 1):
            return 0
        if leader.tokens[first - 1] != sequence.tokens[first - 1]:
            return 0
        shared = self._whole_pages(sequence.shared_with(leader, len(sequence) - 1))
        return shared if shared >= first else 0

    def _whole_pages(self, tokens: int) -> int:
        return tokens // self._cache.page_size * self._cache.page_size


def _committed(leader: Sequence) -> int:
    assert leader.lease is not None
    return leader.lease.committed


def may_follow(sequence: Sequence) -> bool:
    """Whether it has not yet waited for too much."""
    return sequence.followed < _PATIENCE_LENGTHS * len(sequence)
