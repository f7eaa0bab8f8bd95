"""The waiting sequences column by column, so that neither ageing nor ordering loops over a long queue in Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sapwood.sched.sequence import Sequence
from sapwood.types import SeqId

Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]

_ENTRY = np.dtype(
    [
        ("arrival", np.int64),
        ("sample", np.int64),
        ("cached", np.int64),
        ("passed", np.int64),
        ("priority", np.int64),
        ("leader", np.int64),
        ("until", np.int64),
        ("returning", np.bool_),
    ]
)


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """What a policy may know: per column one entry for each that waits. Counts are in tokens; read only."""

    sequences: list[Sequence]
    arrival: Counts
    """Age rank of the request; the smaller, the older."""
    sample: Counts
    cached: Counts
    """What a lease would reuse, as of the last lookup; 0 unless the policy asks for it."""
    passed: Counts
    """What was computed for requests that arrived later, while this one waited."""
    priority: Counts
    returning: Flags
    """Whether it was preempted."""
    overdue: Flags
    """Whether `passed` has reached the patience."""
    latest: Sequence | None
    """Who was admitted last."""

    def by_age(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """`rows`, the oldest first."""
        return rows[np.lexsort((self.sample[rows], self.arrival[rows]))]


class WaitingTable:
    """One entry per sequence; the last takes the place of one that is removed, so both cost the same for any length."""

    def __init__(self) -> None:
        self._rows: dict[SeqId, int] = {}
        self._sequences: list[Sequence] = []
        self._entries = np.zeros(64, _ENTRY)

    def __len__(self) -> int:
        return len(self._sequences)

    def __contains__(self, seq: SeqId) -> bool:
        return seq in self._rows

    def add(self, sequence: Sequence, *, returning: bool) -> None:
        row = len(self._sequences)
        if row == len(self._entries):
            self._entries = np.concatenate([self._entries, np.zeros(row, _ENTRY)])
        self._rows[sequence.id] = row
        self._sequences.append(sequence)
        priority = sequence.request.priority
        self._entries[row] = (sequence.arrival, sequence.sample, 0, 0, priority, 0, 0, returning)

    def remove(self, seq: SeqId) -> Sequence | None:
        """The sequence that was removed; None if it is not here."""
        row = self._rows.pop(seq, None)
        if row is None:
            return None
        removed = self._sequences[row]
        last = self._sequences.pop()
        if last.id != seq:
            self._sequences[row] = last
            self._rows[last.id] = row
            self._entries[row] = self._entries[len(self._sequences)]
        return removed

    def column(self, name: str) -> NDArray[np.int64]:
        """A view that writes through."""
        return self._entries[name][: len(self)]

    def value(self, seq: SeqId, name: str) -> int:
        return int(self._entries[self._rows[seq]][name])

    def set_cached(self, seq: SeqId, tokens: int) -> None:
        self._entries["cached"][self._rows[seq]] = tokens

    def set_stretch(self, seq: SeqId, leader: int, until: int) -> None:
        """Whom it waits for, and until they have committed so many tokens; none if that is 0."""
        entry = self._entries[self._rows[seq] : self._rows[seq] + 1]
        entry["leader"], entry["until"] = leader, until

    def following(self, committed: Mapping[SeqId, int]) -> Flags:
        """Whose leader is one of these and has yet to compute some of what they wait for."""
        found = np.zeros(len(self), np.bool_)
        rows = np.flatnonzero(self.column("until"))
        if len(rows) and committed:
            leaders = np.array(sorted(committed), np.int64)
            so_far = np.array([committed[SeqId(each)] for each in leaders.tolist()])
            theirs = self.column("leader")[rows]
            at = np.searchsorted(leaders, theirs).clip(max=len(leaders) - 1)
            found[rows] = (leaders[at] == theirs) & (so_far[at] < self.column("until")[rows])
        return found

    def returning(self) -> list[Sequence]:
        """Those that were preempted."""
        return [self._sequences[row] for row in np.flatnonzero(self.column("returning")).tolist()]

    def oldest_if_returning(self) -> Sequence | None:
        """The oldest of all, if it was preempted."""
        row = int(np.lexsort((self.column("sample"), self.column("arrival")))[0])
        return self._sequences[row] if self._entries[row]["returning"] else None

    def sequences(self) -> Iterator[Sequence]:
        return iter(self._sequences)

    def view(self, patience: int, latest: Sequence | None) -> Waiting:
        entries = self._entries[: len(self)]
        return Waiting(
            sequences=self._sequences,
            arrival=entries["arrival"],
            sample=entries["sample"],
            cached=entries["cached"],
            passed=entries["passed"],
            priority=entries["priority"],
            returning=entries["returning"],
            overdue=entries["passed"] >= patience,
            latest=latest,
        )
