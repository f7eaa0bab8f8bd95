"""The order in which waiting sequences are admitted. A policy is one method that returns a sort key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sapwood.config import OrderName, SchedulerConfig

SortKey = tuple[float, ...]

_AT_THE_FRONT = float("-inf")


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a policy may know of a waiting sequence. Counts are in tokens."""

    arrival: int
    """Age rank; the smaller, the older."""
    sample: int
    cached: int
    """What a lease would reuse, as of the last lookup; 0 unless the policy asks for it."""
    passed: int
    """What was computed for requests that arrived later, while this one waited."""
    priority: int


class Order(Protocol):
    """Smallest key first. Keys must be total: end them with (arrival, sample)."""

    @property
    def needs_cached(self) -> bool:
        """Whether `Candidate.cached` is used."""
        ...

    @property
    def needs_passed(self) -> bool:
        """Whether `Candidate.passed` is used."""
        ...

    def key(self, candidate: Candidate) -> SortKey: ...


def front(arrival: int, sample: int) -> SortKey:
    """The key of those who go before all others, whatever the policy; among themselves the oldest first."""
    return (_AT_THE_FRONT, arrival, sample)


def is_front(key: SortKey) -> bool:
    return key[0] == _AT_THE_FRONT


class Fcfs:
    """First come, first served."""

    needs_cached = False
    needs_passed = False

    def key(self, candidate: Candidate) -> SortKey:
        return (candidate.arrival, candidate.sample)


class LongestPrefix:
    """Longest cached prefix first, before others evict it (as in SGLang, 2024); ties in order of arrival.

    Nothing bounds how long a request without a prefix waits.
    """

    needs_cached = True
    needs_passed = False

    def key(self, candidate: Candidate) -> SortKey:
        return (-candidate.cached, candidate.arrival, candidate.sample)


class Gain:
    """The default: most to be reused first, but nobody is passed over for more than a stated bound.

    The clock is tokens: a request ages by what is computed, while it waits, for requests that arrived after
    it (`passed`). A token of reuse is worth being passed over by `weight` tokens, so a request without a
    prefix usually waits `weight` times the prefixes it lacks; `patience` is the hard limit.

    Bound. With patience P, `chunk_tokens` C, `max_running` R and sequences of at most L tokens, at most

        P + C + R·L tokens

    are computed for later requests before a request is admitted, however hot and many they are. For those
    that arrived before it, it waits as under fcfs or less.

    Proof. `passed` grows by at most C a step, as a step computes no more. So after the first step at whose
    end passed ≥ P it is below P + C. From then on the key is the front's, where only older ones stand before
    it; admission goes by key and ends at the first that does not fit, and at the first of the front that
    waits for a leader; a preempted sequence comes back at the front too, so a younger one comes back behind.
    Hence no later request is admitted any more, and what is still computed for later ones goes to the at most
    R that run: each computes each of its at most L positions once before it ends or is preempted. ∎ The proof
    asks nothing of `cached`, which may be old.

    Waiting for a leader (`in_flight`) is part of this number: who follows ages by what is computed for later
    ones, its leader included. And it ends: each leader is waited for in one step, and the stretches waited
    for sum to at most five times the request's own length.
    """

    needs_cached = True
    needs_passed = True

    def __init__(self, patience: int, weight: int = 4) -> None:
        self._patience = patience
        self._weight = weight

    def key(self, candidate: Candidate) -> SortKey:
        if candidate.passed >= self._patience:
            return front(candidate.arrival, candidate.sample)
        gain = self._weight * candidate.cached + candidate.passed
        return (-gain, candidate.arrival, candidate.sample)


class Priority:
    """The lowest `priority` first, as in vLLM; ties in order of arrival. A low one may starve a high one."""

    needs_cached = False
    needs_passed = False

    def key(self, candidate: Candidate) -> SortKey:
        return (candidate.priority, candidate.arrival, candidate.sample)


class Random:
    """An order that knows nothing, for comparison: the same requests always come in the same order."""

    needs_cached = False
    needs_passed = False

    def key(self, candidate: Candidate) -> SortKey:
        return (_scatter(candidate.arrival), candidate.arrival, candidate.sample)


def order_for(config: SchedulerConfig) -> Order:
    orders: dict[OrderName, Order] = {
        "default": Gain(config.patience_tokens),
        "fcfs": Fcfs(),
        "lpm": LongestPrefix(),
        "priority": Priority(),
        "random": Random(),
    }
    return orders[config.schedule_policy]


def _scatter(number: int) -> int:
    """64 well-mixed bits of a number (the finaliser of SplitMix64; Steele, Lea and Flood, 2014)."""
    mask = 2**64 - 1
    mixed = (number + 1) * 0x9E3779B97F4A7C15 & mask
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & mask
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & mask
    return mixed ^ mixed >> 31
