"""LMCache's calls of agents, with their texts: time in microseconds, the whole prompt, the answer, a session.

{"timestamp": 1795946400000000, "input": "You are …", "output": "Yo", "session_id": "s1"}
"""

from __future__ import annotations

from sapwood.sim.readers.builder import TraceBuilder
from sapwood.sim.readers.source import Source
from sapwood.sim.readers.tokenize import Tokenize, as_names, text_bytes
from sapwood.sim.trace import Trace


def read_lmcache(source: Source, *, tokenize: Tokenize = text_bytes) -> Trace:
    """Prompt and answer are cut into tokens apart from each other. Raises UsageError, naming the line at fault."""
    builder, empty = TraceBuilder(source.name, 1), 0
    for row in source.rows():
        prompt, reply = as_names(tokenize(row.text("input"))), as_names(tokenize(row.text("output")))
        if not len(prompt):
            empty += 1
            continue
        session = builder.session(None if (key := row.fields.get("session_id")) is None else str(key))
        builder.add_tokens(row.real("timestamp") / 1e6, prompt, reply, len(reply), session)
    if tokenize is text_bytes:
        builder.notes.append("a token is a byte: no tokenizer was named")
    if empty:
        builder.notes.append(f"{empty} calls with an empty prompt are left out")
    return builder.build(from_zero=True)
