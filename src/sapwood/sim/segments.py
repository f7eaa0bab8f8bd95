"""Which stretches of each prompt were last used when: what every curve of hit rates is computed from.

    request 7    [ a b c | d e | f g ]         d e were last used by request 4, a b c by request 6,
    previous       6 6 6   4 4   - -           f g never before: two segments

Whoever asks for a block asks for all before it, so the previous use of a block is no later than that of the one before
it. A path is therefore few segments, however many blocks it has: the work is per segment, not per block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sapwood.sim.paths import path_ids
from sapwood.sim.trace import Trace

_BLOCKS_AT_ONCE = 1 << 22
"""Blocks of which the previous uses are held in memory together."""

_NEVER = -1


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """Stretches of paths that were used before, in order of request and, within it, of depth. Lengths in blocks.

    Attributes:
        lengths: int64 [n], blocks of each request.
        request, previous: int64 [s], who uses the stretch, and who used all of it last.
        start, length: int64 [s], blocks before it in its path, and its own.
    """

    lengths: NDArray[np.int64]
    request: NDArray[np.int64]
    previous: NDArray[np.int64]
    start: NDArray[np.int64]
    length: NDArray[np.int64]

    @classmethod
    def of(cls, trace: Trace) -> Segments:
        """One pass over the trace, one look at each block."""
        parts = list(_parts(trace))
        lengths = np.diff(trace.offsets)
        if not parts:
            nothing = np.empty(0, np.int64)
            return cls(lengths, nothing, nothing, nothing, nothing)
        request, previous, start, length = (
            np.concatenate([getattr(part, column) for part in parts])
            for column in ("request", "previous", "start", "length")
        )
        return cls(lengths, request, previous, start, length)

    def firsts(self) -> NDArray[np.int64]:
        """int64 [n + 1]; request i has the segments firsts[i] .. firsts[i+1]-1."""
        return np.searchsorted(self.request, np.arange(len(self.lengths) + 1))


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """The segments of some requests that follow each other."""

    request: NDArray[np.int64]
    previous: NDArray[np.int64]
    start: NDArray[np.int64]
    length: NDArray[np.int64]


def _parts(trace: Trace) -> Iterator[_Part]:
    ids = path_ids(trace)
    last = np.full(int(ids.max(initial=0)) + 1, _NEVER, np.int32)
    at, offsets = 0, trace.offsets
    while at < len(trace):
        end = max(at + 1, int(np.searchsorted(offsets, offsets[at] + _BLOCKS_AT_ONCE, "right")) - 1)
        blocks = ids[offsets[at] : offsets[end]]
        edges = (offsets[at : end + 1] - offsets[at]).tolist()
        yield _segments_of(_previous_uses(blocks, edges, at, last), edges, at)
        at = end


def _previous_uses(
    blocks: NDArray[np.int32], edges: list[int], first: int, last: NDArray[np.int32]
) -> NDArray[np.int32]:
    """For each block the latest request before that had it. `last` is brought up to date."""
    previous = np.empty(len(blocks), np.int32)
    start = 0
    for number, end in enumerate(edges[1:], first):
        row = blocks[start:end]
        previous[start:end] = last[row]
        last[row] = number
        start = end
    return previous


def _segments_of(previous: NDArray[np.int32], edges: list[int], first: int) -> _Part:
    begins = np.empty(len(previous), np.bool_)
    np.not_equal(previous[1:], previous[:-1], out=begins[1:])
    origins = np.array(edges, np.int64)
    begins[origins[:-1][np.diff(origins) > 0]] = True
    starts = np.flatnonzero(begins)
    lengths = np.diff(starts, append=len(previous))
    used = previous[starts] != _NEVER
    starts, lengths = starts[used], lengths[used]
    row = np.searchsorted(origins, starts, "right") - 1
    return _Part(first + row, previous[starts].astype(np.int64), starts - origins[row], lengths)
