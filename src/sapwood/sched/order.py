"""The order in which waiting sequences are admitted. A policy is one method that returns a sort key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from sapwood.config import OrderName

SortKey = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a policy may know of a waiting sequence."""

    arrival: int
    """Age rank; the smaller, the older."""
    sample: int
    length: int
    """Tokens to be computed or reused."""
    cached: int
    """Tokens that a lease would reuse now; 0 unless the policy asks for it."""
    priority: int
    waited: float
    """Seconds since it began to wait."""


class Order(Protocol):
    """Smallest key first. Keys must be total: end them with (arrival, sample)."""

    @property
    def needs_cached(self) -> bool:
        """Whether `Candidate.cached` is used; looking it up costs a match per waiting sequence and step."""
        ...

    def key(self, candidate: Candidate) -> SortKey: ...


class Fcfs:
    """First come, first served."""

    needs_cached = False

    def key(self, candidate: Candidate) -> SortKey:
        return (candidate.arrival, candidate.sample)


class LongestPrefix:
    """Longest cached prefix first, before others evict it (as in SGLang, 2024); ties in order of arrival."""

    needs_cached = True

    def key(self, candidate: Candidate) -> SortKey:
        return (-candidate.cached, candidate.arrival, candidate.sample)


ORDERS: Mapping[OrderName, Order] = MappingProxyType({"fcfs": Fcfs(), "lpm": LongestPrefix()})
