"""A capture as a trace: its prompts, first answers and times, and what of it is not looked at there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sapwood.sim.readers.builder import TraceBuilder
from sapwood.sim.readers.capture import CapturedRequest, CapturedRun, read_capture
from sapwood.sim.readers.captured_deeds import Flush, Limit, PinTried, Publish
from sapwood.sim.readers.sessions import continued
from sapwood.sim.readers.source import Source
from sapwood.sim.trace import Trace, TraceRequest


def capture_trace(source: Source) -> Trace:
    """All requests of all runs, at the times at which they came. Raises UsageError."""
    builder, runs = TraceBuilder(source.name, 1), read_capture(source)
    first = runs[0].header.real("began_at")
    rows: list[TraceRequest] = []
    for run in runs:
        begin = run.header.real("began_at") - first
        for request in run.requests:
            if request.started_step is not None and len(request.prompt):
                rows.append(_trace_request(builder, request, max(0.0, begin + request.arrival)))
    for row, session in zip(rows, continued(rows, 1), strict=True):
        names, scope = row.names, row.scope
        builder.add_tokens(
            row.arrival, names[: row.prompt_tokens], names[row.prompt_tokens :], 0, session, scope
        )
    builder.notes += _notes(runs)
    return builder.build()


def _trace_request(builder: TraceBuilder, request: CapturedRequest, arrival: float) -> TraceRequest:
    reply = request.outputs[0] if request.outputs else np.empty(0, np.int32)
    names = np.concatenate((request.prompt, reply))
    scope = builder.scope(request.scope.name)
    return TraceRequest(arrival, len(request.prompt), len(reply), names, len(names), 0, scope)


def _notes(runs: Sequence[CapturedRun]) -> Iterator[str]:
    yield "sessions are guessed: a prompt that goes on from a whole earlier one is of its session"
    if len(runs) > 1:
        yield f"{len(runs)} runs of the server; tenants and salts of one are not known in another"
    requests = [request for run in runs for request in run.requests]
    begun = [request for request in requests if request.started_step is not None and len(request.prompt)]
    if empty := sum(not len(request.prompt) for request in requests):
        yield f"{_requests(empty)} with an empty prompt left out"
    if dead := len(requests) - len(begun) - empty:
        yield f"{_requests(dead)} that never began left out"
    if several := sum(len(request.outputs) > 1 for request in begun):
        yield f"of {_requests(several)} with several samples only the first sample is replayed"
    if left := sum(request.aborted for request in begun):
        yield f"{_requests(left)} aborted: here each reads its whole prompt, and ends after what it had answered"
    for name, usual, what in (
        ("reuse", True, "told to reuse nothing; here they may"),
        ("priority", 0, "with a priority, which is not looked at here"),
    ):
        if count := sum(request.row.fields.get(name, usual) != usual for request in requests):
            yield f"{_requests(count)} {what}"
    for kind, what in (
        (PinTried, "prompts were to be pinned"),
        (Publish, "times prefixes were published to all"),
        (Limit, "times tenants were given quotas"),
        (Flush, "times the cache was emptied"),
    ):
        if count := sum(isinstance(deed, kind) for run in runs for deed in run.deeds):
            yield f"{count} {what}, which is not done here"
    yield from sorted({gap for run in runs for gap in run.gaps})


def _requests(count: int) -> str:
    return f"{count} request{'' if count == 1 else 's'}"
