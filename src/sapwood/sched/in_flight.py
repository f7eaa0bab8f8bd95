"""In-flight sharing: who waits a step because another is computing just what it needs next.

A leader is a sequence that reads in this step; a follower waits, and finds the leader's commits in the cache.
The queue remembers who follows whom and up to where, so that a follower is not looked at again before. Nothing
has to be handed over: when a leader is aborted, fails or is preempted, it leads no more, so all its followers
are looked at, and the first of them is admitted and leads the others.

Following ends. A leader computes at least a token in each step that it leads, and stays on its way until the
end of the stretch or loses its seat; so one stretch is waited for a bounded number of steps. A follower is
charged the whole of each stretch when it begins to wait for it (once, however often it is looked at), which is
never more than its own length; and `may_follow` bounds the sum, whatever becomes of the leaders. A long leader
is followed through many steps, and in none of them could the follower have read the shared stretch for less:
one that has yet to read what the follower finds cached leads only if this is no more than what it then reads
for both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sapwood.cache import PrefixCache
from sapwood.sched.sequence import Sequence, Stretch
from sapwood.types import SeqId

_WORTHWHILE_TOKENS = 16
"""A shorter stretch is computed twice rather than waited for, unless it is all that a sequence lacks."""

_PATIENCE_LENGTHS = 4
"""A sequence follows no more once the stretches it waited for sum to this many times its own length."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """What another, which is part of this step, has yet to compute of what a sequence needs next.

    In tokens, whole pages. It may take the other several steps.
    """

    start: int = 0
    """Where the cached prefix ends."""
    tokens: int = 0
    """From there to where the two part."""
    lacking: int = 0
    """From there to the end of what it could ever reuse."""
    leader: Sequence | None = None
    """Who computes it."""

    @property
    def worthwhile(self) -> bool:
        return self.tokens > 0 and self.tokens >= min(_WORTHWHILE_TOKENS, self.lacking)

    def stretch(self, leader: Sequence) -> Stretch:
        """What is worth waiting for: until the leader has committed so much that too little is left."""
        too_short = 0 if self.tokens == self.lacking else _WORTHWHILE_TOKENS - 1
        return Stretch(leader.id, leader.preemptions, self.start + self.tokens - too_short)


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

    def committed(self) -> dict[SeqId, int]:
        """How far each leader has come, in tokens."""
        return {leader.id: _committed(leader) for leader in self._leaders}

    def overlap(self, sequence: Sequence, matched: int) -> Overlap:
        """The longest over all leaders. The cache holds `matched` tokens of the sequence, of all but the last."""
        if not sequence.reads_cache:
            return Overlap()
        lacking = self._whole_pages(len(sequence) - 1) - matched
        longest = Overlap()
        for leader in self._leaders:
            ahead = self._shared(leader, sequence) - matched
            if ahead > longest.tokens and ahead >= matched - _committed(leader):
                longest = Overlap(matched, ahead, lacking, leader)
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
        readable = sequence.readable_after(leader)
        shared = self._whole_pages(sequence.shared_with(leader, readable))
        return shared if shared >= first else 0

    def _whole_pages(self, tokens: int) -> int:
        return tokens // self._cache.page_size * self._cache.page_size


def _committed(leader: Sequence) -> int:
    assert leader.lease is not None
    return leader.lease.committed


def follow(sequence: Sequence, overlap: Overlap, now: float) -> bool:
    """Whether it waits for what overlaps; if so it remembers, and is charged once for each stretch."""
    leader = overlap.leader
    if leader is None or not overlap.worthwhile:
        return False
    stretch = overlap.stretch(leader)
    if stretch == sequence.follows:
        return True
    if sequence.followed >= _PATIENCE_LENGTHS * len(sequence):
        return False
    sequence.follows = stretch
    sequence.followed += overlap.tokens
    if sequence.follows_since is None:
        sequence.follows_since = now
    return True
