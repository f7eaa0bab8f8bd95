"""The order in which waiting sequences are admitted. A policy is one method that returns sort keys."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sapwood.config import OrderName, SchedulerConfig
from sapwood.sched.columns import Flags, Waiting
from sapwood.sched.grouping import depth_first

Keys = NDArray[np.float64]


class Order(Protocol):
    @property
    def needs_cached(self) -> bool:
        """Whether `Waiting.cached` is used."""
        ...

    @property
    def steady(self) -> bool:
        """Whether the order of two that wait changes only as one of them becomes overdue."""
        ...

    @property
    def preempts(self) -> bool:
        """Whether one that waits may push back those that run with a worse `priority`."""
        ...

    def keys(self, waiting: Waiting) -> Keys:
        """One key for each that waits. The smallest is admitted first, and among equals the oldest."""
        ...


def _behind(front: Flags, keys: NDArray[np.number]) -> Keys:
    """The keys of all but the front, which goes before everyone, the oldest first."""
    return np.where(front, -np.inf, keys)


class Fcfs:
    """First come, first served. The bound of `Gain` holds here too, for what passes those that do not fit."""

    needs_cached = False
    steady = True
    preempts = False

    def keys(self, waiting: Waiting) -> Keys:
        return _behind(waiting.returning | waiting.overdue, np.zeros(len(waiting.arrival)))


class LongestPrefix:
    """Longest cached prefix first, before others evict it (as in SGLang, 2024); ties in order of arrival.

    Nothing bounds how long a request without a prefix waits.
    """

    needs_cached = True
    steady = False
    preempts = False

    def keys(self, waiting: Waiting) -> Keys:
        return _behind(waiting.returning, -waiting.cached)


class DepthFirst:
    """The tree of cached prefixes in depth-first order, the branch for which most wait first.

    So requests that share a node run together, and what they share is read before others evict it ("dfs-weight"
    of SGLang, 2024). The walk goes on from the one admitted last: else each admission would make its own branch
    the lighter one, and equal branches would take turns. Those without a cached prefix come last, in order of
    arrival. Nothing bounds how long they wait.

    Grouping compares tokens, so it is done for the WINDOW oldest that have a cached prefix; the others stand
    behind them in order of arrival, and join as the window moves on. One request more in a long queue thus
    changes nothing for those before it.
    """

    WINDOW = 128
    needs_cached = True
    steady = False
    preempts = False

    def keys(self, waiting: Waiting) -> Keys:
        keys = np.full(len(waiting.arrival), np.inf)
        rows = waiting.by_age(np.flatnonzero(waiting.cached))[: self.WINDOW]
        members = [waiting.sequences[row] for row in rows.tolist()]
        lengths = waiting.cached[rows].tolist()
        prefixes = [s.tokens[:length] for s, length in zip(members, lengths, strict=True)]
        visited = None
        if waiting.latest is not None:
            visited = len(members)
            prefixes.append(waiting.latest.tokens)
            members.append(waiting.latest)
        walked = depth_first(prefixes, [s.namespace for s in members], visited)
        keys[rows[walked]] = np.arange(len(rows))
        return _behind(waiting.returning, keys)


class Gain:
    """The default: most to be reused first, but nobody is passed over for more than a stated bound.

    The clock is tokens: a request ages by what is computed, while it waits, for requests that arrived after
    it (`passed`). A token of reuse is worth being passed over by `weight` tokens, so a request without a
    prefix usually waits `weight` times the prefixes it lacks; the patience is the hard limit.

    Bound. With patience P, `chunk_tokens` C, `max_running` R and sequences of at most L tokens, at most

        P + C + R·L tokens

    are computed for later requests before a request is admitted, however hot and many they are.

    Proof. `passed` grows by at most C a step, as a step computes no more. So after the first step at whose
    end passed ≥ P it is below P + C. From then on it is overdue, and its key is the front's, where only older
    ones stand before it. Admission goes by key. Whoever cannot be admitted in a step (it does not fit, no
    budget is left for it, or it waits for a leader) is left out and those behind it are tried, but at the
    first of the front that is left out admission ends; a preempted sequence comes back at the front too, so a
    younger one comes back behind. Hence no later request is admitted any more, and what is still computed for
    later ones goes to the at most R that run: each computes each of its at most L positions once before it
    ends or is preempted. How the budget is split among them (`share`) changes when, not how much. ∎ The proof
    asks nothing of `cached`, which may be old.

    Waiting for a leader (`in_flight`) is part of this number: who follows ages by what is computed for later
    ones, its leader included. And it ends: what leaders compute of the stretches that it waits for sums to at
    most five times the request's own length.
    """

    needs_cached = True
    steady = False
    preempts = False

    def __init__(self, weight: int = 4) -> None:
        self._weight = weight

    def keys(self, waiting: Waiting) -> Keys:
        gain = self._weight * waiting.cached + waiting.passed
        return _behind(waiting.returning | waiting.overdue, -gain)


class Priority:
    """The lowest `priority` first, as in vLLM; ties in order of arrival. A low one may starve a high one.

    A preempted one goes before all others of its own priority, and before no better one: what it was
    preempted for is not undone.
    """

    needs_cached = False
    steady = True
    preempts = True

    def keys(self, waiting: Waiting) -> Keys:
        return waiting.priority.astype(np.float64) - 0.5 * waiting.returning


class Random:
    """An order that knows nothing, for comparison: the same requests always come in the same order."""

    needs_cached = False
    steady = True
    preempts = False

    def keys(self, waiting: Waiting) -> Keys:
        return _behind(waiting.returning, _scatter(waiting.arrival))


def order_for(config: SchedulerConfig) -> Order:
    orders: dict[OrderName, Order] = {
        "default": Gain(),
        "fcfs": Fcfs(),
        "lpm": LongestPrefix(),
        "dfs-weight": DepthFirst(),
        "priority": Priority(),
        "random": Random(),
    }
    return orders[config.schedule_policy]


def _scatter(numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """64 well-mixed bits of each number (the finaliser of SplitMix64; Steele, Lea and Flood, 2014)."""
    mixed = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return mixed ^ mixed >> np.uint64(31)
