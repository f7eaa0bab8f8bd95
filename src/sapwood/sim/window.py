"""A part of a trace that is worth the time that its simulation takes, and what comes before it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sapwood.sim.rates import TOKEN, found_unbounded
from sapwood.sim.trace import Trace


@dataclass(frozen=True, slots=True)
class Window:
    """Requests that follow each other: `count` of them, from the one at the index `first` on."""

    first: int
    count: int


def new_tokens(trace: Trace) -> NDArray[np.int64]:
    """int64 [n], of prompt and reply: those that would have to be computed if nothing were ever forgotten."""
    return trace.prompt_tokens + trace.output_tokens - TOKEN.reused_tokens(trace, found_unbounded(trace))


def busiest(trace: Trace, work: NDArray[np.int64], limit: int) -> Window:
    """Of the windows of so much work, the one that asks for the most tokens per second; the first of several.

    Prompt and reply count, reused or not: what is reused depends on the design. `work` int64 [n], at least 1 of each
    request: ones for windows of `limit` requests. All of the trace, if it has no more work than that.
    """
    done = np.concatenate(([0], np.cumsum(work)))
    if done[-1] <= limit:
        return Window(0, len(trace))
    first = np.arange(np.searchsorted(done, done[-1] - limit, "right"))
    end = np.maximum(np.searchsorted(done, done[first] + limit, "right") - 1, first + 1)
    asked = np.concatenate(([0], np.cumsum(trace.prompt_tokens + trace.output_tokens)))
    arrivals = trace.arrivals
    gap = max(trace.seconds / len(trace), 1e-3)
    rates = (asked[end] - asked[first]) / (arrivals[end - 1] - arrivals[first] + gap)
    best = int(np.argmax(rates))
    return Window(best, int(end[best]) - best)


def before(new: NDArray[np.int64], first: int, tokens: int) -> int:
    """The index of a request from which on, up to `first`, so many new tokens come; 0 if there are fewer.

    `new` is int64 [n], see `new_tokens`.
    """
    come = np.cumsum(new[:first][::-1])
    return max(0, first - 1 - int(np.searchsorted(come, tokens)))
