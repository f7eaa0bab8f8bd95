"""When requests came and how long they were, and nothing of what they said.

Azure's traces and tables of gateways (CSV with a header), spend logs, spans and clients' notes of usage (JSON, one
object a line). Columns and fields may have any of the usual names; see `usage.py` and `fields.py`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sapwood.errors import UsageError
from sapwood.sim.readers.builder import TraceBuilder
from sapwood.sim.readers.fields import answer_of, has_failed, session_of, time_of
from sapwood.sim.readers.source import Row, Source
from sapwood.sim.readers.usage import Usage, counted, usage_of
from sapwood.sim.trace import Trace, TraceRequest

_LONGEST_HEADER = 10_000
UNIT = 64
"""Tokens that get a name: any would do, since no two are alike."""
CONTENTS = (
    "arrivals and lengths only: all contents differ, so no reuse can be read from it; a log with prompts, or "
    "`sapwood serve --capture`, tells what prefixes are worth"
)


@dataclass(slots=True)
class _Arrivals:
    builder: TraceBuilder
    empty: int = 0
    untold: int = 0
    failed: int = 0

    def take(self, fields: Mapping[str, Any]) -> None:
        at, usage = time_of(fields), usage_of(fields, answer_of(fields))
        if has_failed(fields):
            self.failed += 1
        elif at is None or usage.prompt_tokens is None or usage.output_tokens is None:
            self.untold += 1
        elif not usage.prompt_tokens:
            self.empty += 1
        else:
            self._add(at, usage.prompt_tokens, usage.output_tokens, session_of(fields, {}))

    def _add(self, at: float, prompt: int, output: int, session: str | None) -> None:
        names = self.builder.fresh(-(-prompt // UNIT))
        self.builder.add(TraceRequest(at, prompt, output, names, prompt, self.builder.session(session)))

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
    for row in _rows(source):
        arrivals.take(row.fields)
    arrivals.builder.assumed.append(CONTENTS)
    arrivals.builder.notes += arrivals.notes()
    return arrivals.builder.build(from_zero=True)


def are_arrivals(fields: Mapping[str, Any]) -> bool:
    """Whether a line has a time and both counts."""
    return time_of(fields) is not None and usage_of(fields, answer_of(fields)).whole


def is_table(header: str) -> bool:
    """Whether a first line names a time and both counts."""
    if header.startswith("{") or len(header) > _LONGEST_HEADER:
        return False
    return are_arrivals(dict.fromkeys(next(csv.reader([header]), []), "1"))


def _rows(source: Source) -> Iterator[Row]:
    """Of JSON or of a table, whose values are texts."""
    first = next(source.lines(), None)
    yield from _table(source) if first and not first.text.startswith("{") else source.rows()


@dataclass(slots=True)
class _Numbered:
    """The lines of a source, and how many of it have been read: a text in quotes may go over several."""

    source: Source
    number: int = 0

    def texts(self) -> Iterator[str]:
        for line in self.source.lines():
            self.number = line.number
            yield line.text

    def fault(self, what: str) -> UsageError:
        return UsageError(
            f"{self.source.at(self.number)} {what}", hint="the line is cut or damaged; get the file again"
        )


def _table(source: Source) -> Iterator[Row]:
    lines = _Numbered(source)
    read = csv.reader(lines.texts())
    try:
        header = next(read)
        times, counts = [name for name in header if time_of({name: "1"}) is not None], counted(header)
        for values in read:
            if len(values) != len(header):
                raise lines.fault(f"has {len(values)} values; {len(header)} were expected")
            fields = {name: value for name, value in zip(header, values, strict=True) if value.strip()}
            _check(lines, fields, times, counts)
            yield Row(source.at(lines.number), fields)
    except csv.Error as error:
        raise lines.fault(f"is no line of a table: {error}") from None


def _check(lines: _Numbered, fields: Mapping[str, str], times: Sequence[str], counts: Sequence[str]) -> None:
    """A time or a count may be missing, but not be anything else."""
    for names, are, expected in ((times, time_of, "a time"), (counts, usage_of, "a count of tokens")):
        for name in names:
            if name in fields and are({name: fields[name]}) in (None, Usage()):
                raise lines.fault(f"has {fields[name][:40]!r} as {name}; {expected} was expected")
