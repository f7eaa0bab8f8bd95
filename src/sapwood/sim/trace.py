"""Traces: who asked what, when, and how long the answer was. Contents are names of blocks, not text.

    names      n0        n1        n2        n3
               |---------|---------|---------|-----
    tokens     0         u         2u        3u    known_tokens
               |------------ prompt ------|-- reply --|

A block of `unit_tokens` tokens has a name that stands for itself and all before it, so two requests share just the
blocks at whose start they agree in all names. With a unit of 1 the names are token ids. What a trace does not name (a
reply, as a rule, or the tail of a prompt where blocks are whole) is nobody else's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sapwood.errors import UsageError

Names: TypeAlias = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class TraceRequest:
    """One row. Raises UsageError for one that cannot be.

    Attributes:
        arrival: seconds since the trace began.
        names: int32 [ceil(known_tokens / unit_tokens)], of prompt and reply; the last may stand for a partial block.
        known_tokens: tokens that `names` covers, from the start; at most prompt and reply.
        session: a number that the requests of one conversation or agent share; unique to it if there is none.
        scope: whose cache it may share: the index of a name in the trace's `scopes`.
    """

    arrival: float
    prompt_tokens: int
    output_tokens: int
    names: Names
    known_tokens: int
    session: int
    scope: int = 0

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1 or self.output_tokens < 0 or not self.arrival >= 0:
            raise UsageError(
                f"a request at {self.arrival} s has {self.prompt_tokens} prompt tokens and {self.output_tokens} "
                "output tokens; at least 0 s, 1 and 0 were expected"
            )
        if not 0 <= self.known_tokens <= self.prompt_tokens + self.output_tokens:
            raise UsageError(
                f"names cover {self.known_tokens} tokens of a request of {self.prompt_tokens} + {self.output_tokens}"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Requests in order of arrival, in columns.

    Attributes:
        name: of the file or the generator, for people.
        unit_tokens: tokens in a block.
        arrivals: float64 [n], seconds, ascending.
        prompt_tokens, output_tokens, known_tokens, sessions, scopes: int64 [n]; see `TraceRequest`.
        names: int32, those of all requests one after another.
        offsets: int64 [n + 1]; request i has names[offsets[i]:offsets[i+1]].
        scope_names: whose caches they are.
        notes: what a reader left out or made up, for people.
        assumed: of these, what all figures rest on: to be told before them.
    """

    name: str
    unit_tokens: int
    arrivals: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    known_tokens: NDArray[np.int64]
    sessions: NDArray[np.int64]
    scopes: NDArray[np.int64]
    names: Names
    offsets: NDArray[np.int64]
    scope_names: tuple[str, ...] = ("",)
    notes: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        unit_tokens: int,
        requests: Iterable[TraceRequest],
        scope_names: Sequence[str] = ("",),
        notes: Sequence[str] = (),
        assumed: Sequence[str] = (),
    ) -> Trace:
        """Sorts by arrival; those of one moment stay in the order given."""
        rows = sorted(requests, key=lambda row: row.arrival)
        lengths = [len(row.names) for row in rows]
        return cls(
            name,
            unit_tokens,
            np.array([row.arrival for row in rows], np.float64),
            np.array([row.prompt_tokens for row in rows], np.int64),
            np.array([row.output_tokens for row in rows], np.int64),
            np.array([row.known_tokens for row in rows], np.int64),
            np.array([row.session for row in rows], np.int64),
            np.array([row.scope for row in rows], np.int64),
            np.concatenate([np.empty(0, np.int32), *(row.names for row in rows)]).astype(np.int32),
            np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))).astype(np.int64),
            tuple(scope_names),
            tuple(notes),
            tuple(assumed),
        )

    def __len__(self) -> int:
        return len(self.arrivals)

    def __getitem__(self, index: int) -> TraceRequest:
        return TraceRequest(
            float(self.arrivals[index]),
            int(self.prompt_tokens[index]),
            int(self.output_tokens[index]),
            self.names[self.offsets[index] : self.offsets[index + 1]],
            int(self.known_tokens[index]),
            int(self.sessions[index]),
            int(self.scopes[index]),
        )

    def where(self, chosen: NDArray[np.bool_]) -> Trace:
        """The requests chosen, bool [n], and no others."""
        lengths = np.diff(self.offsets)
        return replace(
            self,
            arrivals=self.arrivals[chosen],
            prompt_tokens=self.prompt_tokens[chosen],
            output_tokens=self.output_tokens[chosen],
            known_tokens=self.known_tokens[chosen],
            sessions=self.sessions[chosen],
            scopes=self.scopes[chosen],
            names=self.names[np.repeat(chosen, lengths)],
            offsets=np.concatenate(([0], np.cumsum(lengths[chosen], dtype=np.int64))),
        )

    def named(self, lengths: NDArray[np.int64]) -> Trace:
        """With so many of the leading names of each request, int64 [n], at most as many as it has."""
        before = np.diff(self.offsets)
        place = np.arange(len(self.names)) - np.repeat(self.offsets[:-1], before)
        return replace(
            self,
            known_tokens=np.minimum(self.known_tokens, lengths * self.unit_tokens),
            names=self.names[place < np.repeat(lengths, before)],
            offsets=np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))),
        )

    @property
    def seconds(self) -> float:
        """From the first arrival to the last, of which there is at least one."""
        return float(self.arrivals[-1] - self.arrivals[0])

    def __iter__(self) -> Iterator[TraceRequest]:
        return (self[index] for index in range(len(self)))
