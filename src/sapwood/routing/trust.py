"""How far what a replica seems to hold can be counted on: learned from what it then reused."""

from __future__ import annotations

_PRIOR_REPORTS = 3.0
"""So many found all that was expected, before anything is known: one surprise changes little."""

_FADE = 0.95
"""Each report makes earlier ones count so much less: some twenty are remembered."""


class _Record:
    __slots__ = ("found", "reports")

    def __init__(self) -> None:
        self.reports = 0.0
        self.found = 0.0


class Trust:
    """Memory: two numbers for each replica."""

    def __init__(self) -> None:
        self._records: dict[int, _Record] = {}

    def of(self, replica: int) -> float:
        """The share, 0 to 1, of what was believed to be there that was, as a mean over requests."""
        record = self._records.get(replica)
        if record is None:
            return 1.0
        return (_PRIOR_REPORTS + record.found) / (_PRIOR_REPORTS + record.reports)

    def learn(self, replica: int, believed: int, reused: int) -> None:
        """Of so many tokens that were surely there it reused so many; more than that is no reason to believe more."""
        if believed <= 0:
            return
        record = self._records.setdefault(replica, _Record())
        record.reports = record.reports * _FADE + 1.0
        record.found = record.found * _FADE + max(0, min(reused, believed)) / believed

    def forget(self, replica: int) -> None:
        self._records.pop(replica, None)
