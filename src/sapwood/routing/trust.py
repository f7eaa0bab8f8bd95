"""How far what a replica may hold can be counted on: learned from what it then reused."""

from __future__ import annotations

_PRIOR_REPORTS = 3.0
"""Before anything is known it is as if so many had found what is expected: one surprise changes little."""

_FADE = 0.95
"""Each report makes earlier ones count so much less: some twenty are remembered."""


class _Record:
    __slots__ = ("found", "reports")

    def __init__(self) -> None:
        self.reports = 0.0
        self.found = 0.0


class Trust:
    """Memory: two numbers for each replica.

    Args:
        prior: the share that is expected of one that nothing is known of.
    """

    def __init__(self, prior: float = 1.0) -> None:
        self._prior = prior
        self._records: dict[int, _Record] = {}

    def of(self, replica: int) -> float:
        """The share, 0 to 1, of what was believed to be there that was, as a mean over requests."""
        record = self._records.get(replica)
        if record is None:
            return self._prior
        return (_PRIOR_REPORTS * self._prior + record.found) / (_PRIOR_REPORTS + record.reports)

    def learn(self, replica: int, believed: int, reused: int) -> None:
        """Of so many tokens that were surely there it reused so many; more than that is no reason to believe more."""
        if believed <= 0:
            return
        record = self._records.setdefault(replica, _Record())
        record.reports = record.reports * _FADE + 1.0
        record.found = record.found * _FADE + max(0, min(reused, believed)) / believed

    def forget(self, replica: int) -> None:
        self._records.pop(replica, None)
