"""More users, or fewer: a trace over which copies of its sessions are laid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sapwood.errors import UsageError
from sapwood.sim.trace import Trace

SHIFT_SECONDS = 60.0
"""A copied session begins so much earlier or later, at most."""

_MOST = np.iinfo(np.int32).max


def with_traffic(trace: Trace, traffic: float, seed: int = 0) -> Trace:
    """As many times the users in the same time, each at the pace of the trace; some of them where it is below 1.

    A copied session has a number and names of its own, so it shares nothing with other copies, not even a system
    prompt, and it begins up to a minute earlier or later than the one that it copies. Which sessions are copied where
    not all are, and when they begin, is drawn from `seed`. Raises UsageError for traffic that is not above 0.
    """
    if not 0 < traffic < float("inf"):
        raise UsageError(f"traffic is {traffic:g} times that of the trace; it must be more than 0")
    if traffic == 1 or not len(trace):
        return trace
    random = np.random.default_rng(seed)
    whole, rest = divmod(traffic, 1.0)
    trace = _small(trace, int(whole) + 1)
    sessions = np.unique(trace.sessions, return_inverse=True)[1]
    copies = [_copy(trace, sessions, number, random) for number in range(int(whole))]
    if rest:
        some = _some(sessions, rest, random)[sessions]
        copies.append(_copy(trace, sessions, int(whole), random).where(some))
    return _together(copies)


def _small(trace: Trace, copies: int) -> Trace:
    """With names small enough to be told apart in so many copies, if they are not."""
    if copies * (int(trace.names.max(initial=0)) + 1) <= _MOST:
        return trace
    return replace(trace, names=np.unique(trace.names, return_inverse=True)[1].astype(np.int32))


def _some(sessions: NDArray[np.int64], share: float, random: np.random.Generator) -> NDArray[np.bool_]:
    """bool [sessions], drawn until they have this share of all requests; at least one."""
    sizes = np.bincount(sessions)
    order = random.permutation(len(sizes))
    middle = np.cumsum(sizes[order]) - sizes[order] / 2
    chosen = np.zeros(len(sizes), np.bool_)
    chosen[order] = middle <= share * len(sessions)
    chosen[order[0]] = True
    return chosen


def _copy(trace: Trace, sessions: NDArray[np.int64], number: int, random: np.random.Generator) -> Trace:
    """Copy 0 is the original. `sessions` int64 [n] are dense numbers."""
    if number == 0:
        return trace
    arrivals = trace.arrivals + _shifts(trace, sessions, random)[sessions]
    return replace(
        trace,
        arrivals=np.clip(arrivals, trace.arrivals[0], trace.arrivals[-1]),
        sessions=trace.sessions + number * (int(trace.sessions.max()) + 1),
        names=trace.names + np.int32(number * (int(trace.names.max(initial=0)) + 1)),
    )


def _shifts(trace: Trace, sessions: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.float64]:
    """float64 [sessions], seconds that keep each session within the time of the trace."""
    count = int(sessions.max()) + 1
    first, last = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(first, sessions, trace.arrivals)
    np.maximum.at(last, sessions, trace.arrivals)
    earlier = np.minimum(SHIFT_SECONDS, first - trace.arrivals[0])
    later = np.minimum(SHIFT_SECONDS, trace.arrivals[-1] - last)
    return np.asarray(random.uniform(size=count) * (earlier + later) - earlier)


def _together(copies: list[Trace]) -> Trace:
    """In order of arrival."""
    arrivals = np.concatenate([copy.arrivals for copy in copies])
    order = np.argsort(arrivals, kind="stable")
    lengths = np.concatenate([np.diff(copy.offsets) for copy in copies])
    starts = np.concatenate(([0], np.cumsum(lengths)))[:-1][order]
    offsets = np.concatenate(([0], np.cumsum(lengths[order])))
    places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths[order])
    names = np.concatenate([copy.names for copy in copies])[places]
    return replace(
        copies[0],
        arrivals=arrivals[order],
        prompt_tokens=np.concatenate([copy.prompt_tokens for copy in copies])[order],
        output_tokens=np.concatenate([copy.output_tokens for copy in copies])[order],
        known_tokens=np.concatenate([copy.known_tokens for copy in copies])[order],
        sessions=np.concatenate([copy.sessions for copy in copies])[order],
        scopes=np.concatenate([copy.scopes for copy in copies])[order],
        names=names,
        offsets=offsets,
    )
