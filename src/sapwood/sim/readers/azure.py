"""Azure's arrivals and lengths (2023): `TIMESTAMP,ContextTokens,GeneratedTokens`. Nothing is known of the contents."""

from __future__ import annotations

import csv

from sapwood.errors import UsageError
from sapwood.sim.readers.builder import TraceBuilder
from sapwood.sim.readers.source import Line, Source
from sapwood.sim.readers.timestamps import seconds_of
from sapwood.sim.trace import Trace, TraceRequest

UNIT = 64
"""Tokens that get a name: any would do, since no two are alike."""

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"


def read_azure(source: Source) -> Trace:
    """All contents differ. Raises UsageError, naming the line at fault."""
    builder, empty = TraceBuilder(source.name, UNIT), 0
    lines = source.lines()
    next(lines, None)
    for line in lines:
        at, prompt, output = _fields(source, line)
        if prompt == 0:
            empty += 1
            continue
        names = builder.fresh(-(-prompt // UNIT))
        builder.add(TraceRequest(at, prompt, output, names, prompt, builder.session(None)))
    builder.notes.append("arrivals and lengths only: all contents differ, so no reuse can be read from it")
    if empty:
        builder.notes.append(f"{empty} requests without a prompt are left out")
    return builder.build(from_zero=True)


def _fields(source: Source, line: Line) -> tuple[float, int, int]:
    try:
        stamp, prompt, output = next(csv.reader([line.text]))
        at = seconds_of(stamp)
        if at is None or int(prompt) < 0 or int(output) < 0:
            raise ValueError
        return at, int(prompt), int(output)
    except ValueError:
        raise UsageError(
            f"{source.at(line.number)} is {line.text[:80]!r}; a time and two whole numbers were expected",
            hint="the line is cut or damaged; get the file again",
        ) from None
