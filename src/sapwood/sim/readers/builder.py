"""Collects the rows of a trace, numbering what has names of its own: blocks, sessions, scopes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace

import numpy as np

from sapwood.errors import UsageError
from sapwood.sim.trace import Names, Trace, TraceRequest

_MOST_NAMES = 2**31 - 1


class TraceBuilder:
    """Rows in any order; `build` puts them in that of their arrival."""

    def __init__(self, name: str, unit_tokens: int) -> None:
        self.name, self.unit_tokens = name, unit_tokens
        self.notes: list[str] = []
        self.assumed: list[str] = []
        self._rows: list[TraceRequest] = []
        self._blocks: dict[Hashable, int] = {}
        self._sessions: dict[Hashable, int] = {}
        self._scopes: dict[str, int] = {}
        self._named = self._alone = 0

    def __len__(self) -> int:
        return len(self._rows)

    def blocks(self, ids: Iterable[Hashable]) -> Names:
        """The same number for the same id; ids may be of any kind."""
        known, names = self._blocks, []
        for id in ids:
            name = known.get(id)
            if name is None:
                name = known[id] = self._named
                self._named += 1
            names.append(name)
        return np.array(names, np.int32)

    def fresh(self, count: int) -> Names:
        """Names that nobody else has."""
        first, self._named = self._named, self._named + count
        if self._named > _MOST_NAMES:
            raise UsageError(f"{self.name} has more blocks than can be told apart")
        return np.arange(first, self._named, dtype=np.int32)

    def session(self, key: Hashable | None) -> int:
        """The number of a conversation; None is one of its own."""
        if key is None:
            self._alone += 1
            key = (self, self._alone)
        return self._sessions.setdefault(key, len(self._sessions))

    def scope(self, name: str) -> int:
        return self._scopes.setdefault(name, len(self._scopes))

    def add(self, row: TraceRequest) -> None:
        self._rows.append(row)

    def add_tokens(
        self, arrival: float, prompt: Names, reply: Names, output_tokens: int, session: int, scope: int = 0
    ) -> None:
        """A row whose tokens are known, those of its reply perhaps in part."""
        output_tokens = max(output_tokens, len(reply))
        names = np.concatenate((prompt, reply)) if len(reply) else prompt
        self.add(TraceRequest(arrival, len(prompt), output_tokens, names, len(names), session, scope))

    def build(self, *, from_zero: bool = False) -> Trace:
        """`from_zero`: times are those of a calendar; the first is to be 0. Raises UsageError if there are no rows."""
        if not self._rows:
            raise UsageError(
                f"{self.name} has no request that can be replayed", hint="; ".join(self.notes) or None
            )
        rows = self._rows
        if from_zero:
            first = min(row.arrival for row in rows)
            rows = [replace(row, arrival=row.arrival - first) for row in rows]
        scopes = tuple(self._scopes) or ("",)
        return Trace.of(self.name, self.unit_tokens, rows, scopes, self.notes, self.assumed)
