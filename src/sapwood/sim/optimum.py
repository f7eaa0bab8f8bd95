"""The hit rate that no eviction policy can exceed: one that knows the future.

Belady's MIN ("A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5, 1966) on a
tree: when room is needed, what goes is used again last, or never. Whoever asks for a block asks for all before it, so
a block is used again no later than what follows it, and of equals the deeper goes: hence what goes is always a leaf,
and what stays is whole prefixes.

A stretch of a path from one use to the next is held for all of that time or is a miss; at each request what is held
across it has to fit beside what it reads and writes. So it is the choice of most intervals under a capacity, of which
always to drop the one that ends last is best (Faigle and Nawijn, "Note on scheduling intervals on-line", Discrete
Applied Mathematics 58, 1995), whatever the capacity at each point. Counted in blocks; of a partial block it is one.
"""

from __future__ import annotations

import heapq
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sapwood.sim.capacity import fits, units_of
from sapwood.sim.segments import Segments
from sapwood.sim.trace import Trace


class Optimum:
    """The best for one trace, at any capacity.

    beside: whether a request's own blocks need room while it runs, as they do in a real cache, which refuses what is
        longer than itself. Without, a request is computed outside and only what is kept of it needs room: the ceiling
        for caches that may be bypassed as well, and the one that is usually meant; higher by what a request takes.
    """

    def __init__(self, trace: Trace, segments: Segments | None = None, *, beside: bool = False) -> None:
        self.trace = trace
        self._segments = segments or Segments.of(trace)
        self._beside = beside
        self._longest = int(self._segments.lengths.max(initial=0))

    def matched(self, capacity_tokens: int) -> NDArray[np.int64]:
        """int64 [n], blocks that each request finds; 0 for those longer than the cache if they need room."""
        units = units_of(self.trace, capacity_tokens)
        if not self._beside or units >= self._longest:
            return _Belady(self._segments, units, beside=self._beside).run()
        fitting = fits(self.trace, units)
        matched = np.zeros(len(self.trace), np.int64)
        matched[fitting] = _Belady(Segments.of(self.trace.where(fitting)), units, beside=True).run()
        return matched


class _Belady:
    """One pass. The number of a segment tells how soon it is used, and how deep it lies: the largest goes first."""

    def __init__(self, segments: Segments, units: int, *, beside: bool) -> None:
        self._units = units
        self._own = (segments.lengths if beside else np.zeros_like(segments.lengths)).tolist()
        self._ends = segments.firsts().tolist()
        """Segments ends[i] .. ends[i+1]-1 are asked for by request i."""
        self._begin = np.argsort(segments.previous, kind="stable")
        count = np.arange(len(segments.lengths) + 1)
        self._begins = np.searchsorted(segments.previous[self._begin], count).tolist()
        """Segments begin[begins[i]] .. are what request i leaves behind."""
        self._kept = segments.length.tolist()
        self._held = 0
        self._last: list[int] = []
        """Numbers of the segments held, negative: those used last in front. Used ones stay, and count nothing."""

    def run(self) -> NDArray[np.int64]:
        kept, begin = self._kept, self._begin.tolist()
        matched = []
        for (end, end_after), (left, left_after), own in zip(
            pairwise(self._ends), pairwise(self._begins), self._own, strict=True
        ):
            found = sum(kept[end:end_after])
            matched.append(found)
            self._held -= found
            self._give_up_beyond(self._units - own)
            for number in begin[left:left_after]:
                heapq.heappush(self._last, -number)
                self._held += kept[number]
            if not own:
                self._give_up_beyond(self._units)
        return np.array(matched, np.int64)

    def _give_up_beyond(self, room: int) -> None:
        while (surplus := self._held - room) > 0:
            number = -self._last[0]
            if self._kept[number] > surplus:
                self._kept[number] -= surplus
                self._held = room
            else:
                heapq.heappop(self._last)
                self._held -= self._kept[number]
                self._kept[number] = 0
