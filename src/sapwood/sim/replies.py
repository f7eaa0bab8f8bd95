"""A trace with names for all that its requests leave in a cache: what nobody named needs room as well."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sapwood.errors import UsageError
from sapwood.sim.paths import path_ids
from sapwood.sim.trace import Names, Trace

_MOST = np.iinfo(np.int32).max


def with_replies(trace: Trace) -> Trace:
    """Each request has a block for all that it computes, those without a name one that nobody else has.

    The last token of a reply is drawn and never computed. A request without any name stays as it is: nothing of it is
    known, and it may be one that is refused. Raises UsageError if there are not names enough.
    """
    unit, lengths = trace.unit_tokens, np.diff(trace.offsets)
    held = np.maximum(trace.known_tokens, trace.prompt_tokens + np.maximum(trace.output_tokens - 1, 0))
    more = np.where(lengths > 0, np.maximum(-(-held // unit) - lengths, 0), 0)
    if not more.any():
        return trace
    total = lengths + more
    offsets = np.concatenate(([0], np.cumsum(total)))
    names = _small_names(trace, int(more.sum()))
    place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], total)
    named = place < np.repeat(lengths, total)
    first = int(names.max()) + 1
    filled = np.empty(len(named), np.int32)
    filled[named] = names
    filled[~named] = np.arange(first, first + int(more.sum()), dtype=np.int32)
    known = np.where(lengths > 0, held, trace.known_tokens)
    return replace(trace, known_tokens=known, names=filled, offsets=offsets)


def _small_names(trace: Trace, more: int) -> Names:
    """Of the same paths, leaving as many names as asked for above them."""
    for names in (trace.names, path_ids(trace)):
        if int(names.max()) + more < _MOST:
            return names
    raise UsageError(
        f"{trace.name} has more blocks than can be told apart, {_MOST:,}", hint="take a part of it: --limit"
    )
