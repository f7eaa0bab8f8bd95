"""Hit rate under lru at every capacity, from one pass over a trace.

Blocks in the order of their last use, of one request those nearer the start first, form one list for all
capacities: a cache of C blocks holds the first C (Mattson, Gecsei, Slutz and Traiger, "Evaluation techniques for
storage hierarchies", IBM Systems Journal 9, 1970). For lru over the leaves of a tree, from the tail, is lru over blocks
where a request touches its deepest block first: what stands before a block in the list is used later, or is part of
its own prefix, so the list cut anywhere is whole prefixes. A block is a hit at just the capacities from its place in
the list on, its stack distance.

Within a segment (`Segments`) distances rise by one a block, from the number of different blocks that the requests
in between used: all that they used, less what was used again since, which is a weighted count of inversions.

Exact, request by request, for capacities that hold the longest request: then the pages that a request pins while it
grows are always among those that lru would keep anyway. A smaller cache refuses some requests, so at each such
capacity it is a pass of its own over those that fit, and exact as well.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sapwood.sim.capacity import fits, units_of
from sapwood.sim.dominance import sums_of_larger_before
from sapwood.sim.segments import Segments
from sapwood.sim.trace import Trace


class LruStack:
    """The distances of a trace. `segments`, if known, saves the pass over its blocks."""

    def __init__(self, trace: Trace, segments: Segments | None = None) -> None:
        self.trace = trace
        self.segments = segments or Segments.of(trace)
        self.longest = int(self.segments.lengths.max(initial=0))
        """Blocks of the longest request: with less room, the list is another one."""
        self.beyond = _used_between(self.segments)
        """int64 [segments], different blocks used since; the first block of a segment is one further down."""

    def matched(self, capacity_tokens: int) -> NDArray[np.int64]:
        """int64 [n], what `replay` says under lru; 0 for requests that are longer than the cache."""
        units = units_of(self.trace, capacity_tokens)
        if units >= self.longest:
            return self._matched(units)
        fitting = fits(self.trace, units)
        matched = np.zeros(len(self.trace), np.int64)
        matched[fitting] = LruStack(self.trace.where(fitting))._matched(units)
        return matched

    def _matched(self, units: int) -> NDArray[np.int64]:
        held = np.clip(units - self.beyond, 0, self.segments.length)
        return np.asarray(np.bincount(self.segments.request, held, len(self.trace)), np.int64)

    def knots(self) -> NDArray[np.int64]:
        """Capacities in tokens, that hold the longest request, between which the curve is straight."""
        ends = self.beyond + self.segments.length
        units = np.unique(np.concatenate((self.beyond, ends)))
        held = units[units >= self.longest]
        return np.asarray(held * self.trace.unit_tokens, np.int64)


def _used_between(segments: Segments) -> NDArray[np.int64]:
    """Different blocks of the requests after the previous one and before this one."""
    used = np.concatenate(([0], np.cumsum(segments.lengths)))
    again = sums_of_larger_before(segments.previous, segments.length)
    # Of the same request, segments that lie higher were counted too: they are all that is above this one.
    between = used[segments.request] - used[segments.previous + 1]
    return np.asarray(between - (again - segments.start), np.int64)
