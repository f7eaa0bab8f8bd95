"""From what a log tells of its requests to a trace: tokens of texts, lengths of answers, times and sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sapwood.sim.readers.answers import Answers
from sapwood.sim.readers.builder import TraceBuilder
from sapwood.sim.readers.call import Call
from sapwood.sim.readers.scale import Scale, Stretches
from sapwood.sim.readers.sessions import continued
from sapwood.sim.trace import Names, Trace, TraceRequest


@dataclass(frozen=True, slots=True, eq=False)
class _Cut:
    """A call in tokens: names are those of the prompt, then of the reply as far as they are known."""

    prompt_tokens: int
    names: Names
    output_tokens: int | None

    def row(self, arrival: float, output_tokens: int, scope: int) -> TraceRequest:
        names = self.names[: self.prompt_tokens + output_tokens]
        return TraceRequest(arrival, self.prompt_tokens, output_tokens, names, len(names), 0, scope)


def trace_of(builder: TraceBuilder, calls: Sequence[Call], *, output_tokens: int | None = None) -> Trace:
    """With what was assumed, and the notes that `builder` has. Raises UsageError if there are no calls.

    `output_tokens`: of answers that are not known.
    """
    scale = Scale.of(calls)
    cuts = _cuts(calls, scale)
    answers = Answers.of([cut.output_tokens for cut in cuts], output_tokens)
    unknown = [call for call, cut in zip(calls, cuts, strict=True) if cut.output_tokens is None]
    rows = [
        cut.row(arrival, answers.length(call) if cut.output_tokens is None else cut.output_tokens, call.scope)
        for call, cut, arrival in zip(calls, cuts, _filled([call.arrival for call in calls]), strict=True)
    ]
    builder.assumed += (*scale.notes(), *answers.notes(unknown))
    for row, session in zip(rows, _sessions(builder, calls, rows), strict=True):
        builder.add(replace(row, session=session))
    if timeless := sum(call.arrival is None for call in calls):
        told = builder.assumed if timeless == len(calls) else builder.notes
        told.append(
            f"{timeless} requests have no time; they come a second after the one before, the first with the next that "
            "has one"
        )
    return builder.build(from_zero=True)


def _cuts(calls: Sequence[Call], scale: Scale) -> list[_Cut]:
    ids = [each for call in calls for each in (call.prompt, call.reply) if not isinstance(each, bytes)]
    largest = max((int(each.max(initial=-1)) for each in ids), default=-1)
    stretches = Stretches(scale, largest + 1)
    return [_cut(call, stretches) for call in calls]


def _cut(call: Call, stretches: Stretches) -> _Cut:
    """The token that a prompt ends in and its reply begins in is the prompt's."""
    prompt, reply, scale = call.prompt, call.reply, stretches.scale
    if not isinstance(prompt, bytes):
        if isinstance(reply, bytes):
            return _Cut(len(prompt), prompt, _length(call, scale.count(len(reply))))
        return _Cut(len(prompt), np.concatenate((prompt, reply)), _length(call))
    tokens = scale.count(len(prompt))
    if not isinstance(reply, bytes) or not reply:
        return _Cut(tokens, stretches.names(prompt), _length(call))
    names = stretches.names(prompt + reply)
    return _Cut(tokens, names, _length(call, max(len(names) - tokens, 1)))


def _length(call: Call, guess: int = 0) -> int | None:
    """Of an answer. One that is counted may be longer than the tokens that are shown of it; a text is as long as was
    counted, or else as the `guess`.
    """
    reply, told = call.reply, call.usage.output_tokens
    if isinstance(reply, bytes):
        return told if told is not None else guess or None
    return max(len(reply), told or 0) if len(reply) else told


def _sessions(builder: TraceBuilder, calls: Sequence[Call], rows: Sequence[TraceRequest]) -> list[int]:
    if all(call.session is not None for call in calls):
        return [builder.session(call.session) for call in calls]
    builder.notes.append(
        "sessions are guessed: a prompt that goes on from a whole earlier one is of its session"
    )
    guessed = continued(rows, 1)
    return [
        builder.session(guess if call.session is None else call.session)
        for call, guess in zip(calls, guessed, strict=True)
    ]


def _filled(times: Sequence[float | None]) -> list[float]:
    """Who has no time comes a second after the one before; before all that have one, with the first of these."""
    leading = next((index for index, time in enumerate(times) if time is not None), 0)
    filled = [times[leading] or 0.0] * leading if times else []
    for time in times[leading:]:
        made_up = filled[-1] + 1.0 if filled else 0.0
        filled.append(made_up if time is None else time)
    return filled
