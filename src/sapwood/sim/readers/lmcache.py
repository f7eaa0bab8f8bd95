"""LMCache's calls of agents, with their texts: time in microseconds, the whole prompt, the answer, a session.

{"timestamp": 1795946400000000, "input": "You are …", "output": "Yo", "session_id": "s1"}
"""

from __future__ import annotations

from sapwood.sim.readers.builder import TraceBuilder
from sapwood.sim.readers.call import NOTHING, Call, said
from sapwood.sim.readers.calls import trace_of
from sapwood.sim.readers.source import Row, Source
from sapwood.sim.readers.tokenize import A_BYTE, Tokenize, text_bytes
from sapwood.sim.readers.usage import Usage
from sapwood.sim.trace import Trace


def read_lmcache(source: Source, *, tokenize: Tokenize | None = None) -> Trace:
    """Prompt and answer are cut into tokens apart from each other. Raises UsageError, naming the line at fault."""
    builder = TraceBuilder(source.name, 1)
    calls = [_call(row, tokenize) for row in source.rows()]
    asked = [call for call in calls if len(call.prompt)]
    if tokenize is text_bytes:
        builder.assumed.append(A_BYTE)
    if len(asked) < len(calls):
        builder.notes.append(f"{len(calls) - len(asked)} calls with an empty prompt are left out")
    return trace_of(builder, asked)


def _call(row: Row, tokenize: Tokenize | None) -> Call:
    prompt, answer = said(row.text("input"), tokenize), row.text("output")
    session = row.fields.get("session_id")
    return Call(
        row.real("timestamp") / 1e6,
        prompt,
        said(answer, tokenize) if answer else NOTHING,
        Usage() if answer else Usage(output_tokens=0),
        session=None if session is None else str(session),
    )
