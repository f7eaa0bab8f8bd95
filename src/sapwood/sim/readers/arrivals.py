"""When requests came and how long they were, and nothing of what they said.

Azure's traces and tables of gateways (CSV with a header), spend logs, spans and clients' notes of usage (JSON, one
object a line). Columns and fields may have any of the usual names; see `usage.py` and `fields.py`.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sapwood.errors import UsageError
from sapwood.sim.readers.builder import TraceBuilder
from sapwood.sim.readers.fields import answer_of, has_failed, session_of, time_of, times_among
from sapwood.sim.readers.source import Source
from sapwood.sim.readers.timestamps import seconds_of
from sapwood.sim.readers.usage import Usage, count_of, counted, usage_of
from sapwood.sim.trace import Trace, TraceRequest

_LONGEST_HEADER = 10_000
UNIT = 64
"""Tokens that get a name: any would do, since no two are alike."""
CONTENTS = (
    "arrivals and lengths only: all contents differ, so no reuse can be read from it; a log with prompts, or "
    "`sapwood serve --capture`, tells what prefixes are worth"
)


@dataclass(frozen=True, slots=True)
class _Arrival:
    """None is what a line does not tell."""

    at: float | None = None
    usage: Usage = field(default_factory=Usage)
    session: str | None = None
    failed: bool = False

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> _Arrival:
        usage = usage_of(fields, answer_of(fields))
        return cls(time_of(fields), usage, session_of(fields, {}), has_failed(fields))


@dataclass(slots=True)
class _Arrivals:
    builder: TraceBuilder
    empty: int = 0
    untold: int = 0
    failed: int = 0

    def take(self, one: _Arrival) -> None:
        prompt, output = one.usage.prompt_tokens, one.usage.output_tokens
        if one.failed:
            self.failed += 1
        elif one.at is None or prompt is None or output is None:
            self.untold += 1
        elif not prompt:
            self.empty += 1
        else:
            names = self.builder.fresh(-(-prompt // UNIT))
            session = self.builder.session(one.session)
            self.builder.add(TraceRequest(one.at, prompt, output, names, prompt, session))

    def notes(self) -> Iterator[str]:
        for count, what in (
            (self.empty, "requests without a prompt are left out"),
            (self.untold, "lines without a time and both counts are left out"),
            (self.failed, "requests that failed are left out"),
        ):
            if count:
                yield f"{count} {what}"


def read_arrivals(source: Source) -> Trace:
    """Raises UsageError, naming the line at fault."""
    arrivals = _Arrivals(TraceBuilder(source.name, UNIT))
    for one in _all(source):
        arrivals.take(one)
    arrivals.builder.assumed.append(CONTENTS)
    arrivals.builder.notes += arrivals.notes()
    return arrivals.builder.build(from_zero=True)


def are_arrivals(fields: Mapping[str, Any]) -> bool:
    """Whether a line has a time and both counts."""
    try:
        timed = time_of(fields) is not None
    except ValueError:
        timed = True  # The reader says what is wrong with it.
    return timed and usage_of(fields, answer_of(fields)).whole


def is_table(header: str) -> bool:
    """Whether a first line names a time and both counts."""
    if header.startswith("{") or len(header) > _LONGEST_HEADER:
        return False
    try:
        names = next(csv.reader([header]))
    except csv.Error:
        return False
    return are_arrivals(dict.fromkeys(names, "1"))


def _all(source: Source) -> Iterator[_Arrival]:
    first = next(source.lines(), None)
    return _table(source) if first is not None and is_table(first.text) else _lines(source)


def _lines(source: Source) -> Iterator[_Arrival]:
    """What else a program writes, among lines of JSON, tells nothing."""
    for line in source.lines():
        if not line.text.startswith("{"):
            yield _Arrival()
            continue
        with source.at_fault(line):
            arrival = _Arrival.of(source.row(line).fields)
        yield arrival


@dataclass(slots=True)
class _Numbered:
    """The lines of a source, and how many of it have been read: a text in quotes may go over several."""

    source: Source
    number: int = 0

    def texts(self) -> Iterator[str]:
        for line in self.source.lines():
            self.number = line.number
            yield line.text

    def check(
        self, fields: Mapping[str, str], name: str, reading: Callable[[str], float | None], expected: str
    ) -> None:
        """Raises UsageError for what cannot be read."""
        try:
            found = reading(fields[name])
        except ValueError:
            found = None
        if found is None:
            raise self.fault(f"has {fields[name][:40]!r} as {name}; {expected} was expected")

    def fault(self, what: str) -> UsageError:
        return UsageError(
            f"{self.source.at(self.number)} {what}", hint="the line is cut or damaged; get the file again"
        )


@dataclass(frozen=True, slots=True)
class _Columns:
    """Of a table, which of its columns tell what. A time or a count may be missing, but not be anything else.

    Attributes:
        times: the one to be believed first; the next is for lines that have none there.
        counts: those in front of all others of their kind.
    """

    names: Sequence[str]
    times: Sequence[str]
    counts: Sequence[str]

    @classmethod
    def of(cls, names: Sequence[str]) -> _Columns:
        return cls(names, times_among(names), counted(names))

    def arrival(self, values: Sequence[str], lines: _Numbered) -> _Arrival:
        if len(values) != len(self.names):
            raise lines.fault(f"has {len(values)} values; {len(self.names)} were expected")
        fields = {name: value for name, value in zip(self.names, values, strict=True) if value.strip()}
        for name in [name for name in self.times if name in fields][:1]:
            lines.check(fields, name, seconds_of, "a time")
        for name in [name for name in self.counts if name in fields]:
            lines.check(fields, name, count_of, "a count of tokens")
        return _Arrival.of(fields)


def _table(source: Source) -> Iterator[_Arrival]:
    lines = _Numbered(source)
    read = csv.reader(lines.texts())
    try:
        columns = _Columns.of(next(read))
        for values in read:
            yield columns.arrival(values, lines)
    except csv.Error as error:
        raise lines.fault(f"is no line of a table: {error}") from None
