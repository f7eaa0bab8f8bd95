"""Among what a plan may choose: what the hardware holds, what a flag holds fast, and what is left."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sapwood.config import EvictionName, OrderName
from sapwood.errors import UsageError
from sapwood.routing import RouterName
from sapwood.sim.design import Design

TRIED_ROUTINGS: tuple[RouterName, ...] = ("prefix", "session")
"""Rules of `sapwood.routing` that keep a conversation where its history is, the one that knows most first."""
TRIED_PAGES = (1, 16, 64)
"""Tokens. With pages of one a hit may end at any token; larger ones need fewer names."""


@dataclass(frozen=True, slots=True)
class Space:
    """Raises UsageError if there is nothing to choose from.

    Attributes:
        capacities: tokens per replica, ascending: sizes worth asking about.
        most_replicas: at least 1.
        least_replicas: the same for a number that is held.
        policies, orders, routings, page_sizes: the preferred one first; one alone where it is held.
    """

    capacities: tuple[int, ...]
    most_replicas: int = 64
    least_replicas: int = 1
    policies: tuple[EvictionName, ...] = ("default", "lru")
    orders: tuple[OrderName, ...] = ("default", "fcfs")
    routings: tuple[RouterName, ...] = TRIED_ROUTINGS
    page_sizes: tuple[int, ...] = TRIED_PAGES

    def __post_init__(self) -> None:
        if (
            not self.capacities
            or list(self.capacities) != sorted(set(self.capacities))
            or self.capacities[0] < 1
        ):
            raise UsageError(f"capacities are {self.capacities}; ascending numbers of tokens were expected")
        if not 1 <= self.least_replicas <= self.most_replicas:
            raise UsageError(
                f"there may be {self.least_replicas} to {self.most_replicas} replicas; at least 1 was expected"
            )

    @property
    def largest(self) -> Design:
        """The preferred of everything, with the most memory."""
        return Design(
            self.capacities[-1],
            self.least_replicas,
            self.page_sizes[0],
            "radix",
            self.policies[0],
            self.orders[0],
            self.routings[0],
        )

    def alternatives(self, design: Design) -> tuple[tuple[Design, ...], ...]:
        """For each choice other than memory, replicas and pages: `design` with each of its values."""
        kinds = (
            tuple(replace(design, eviction_policy=each) for each in self.policies),
            tuple(replace(design, schedule_policy=each) for each in self.orders),
            tuple(replace(design, routing=each) for each in self.routings if design.replicas > 1),
        )
        return tuple(kind for kind in kinds if len(kind) > 1)

    def in_pages(self, design: Design) -> tuple[Design, ...]:
        """`design` with pages of each size of which its pools hold one."""
        sized = (replace(design, page_size=each) for each in self.page_sizes)
        return tuple(each for each in sized if each.pool_tokens)


def capacities_up_to(most: int, unit: int, count: int = 10, ratio: float = 2.0) -> tuple[int, ...]:
    """Whole multiples of `unit` tokens, each `ratio` times the one before it, `most` (rounded down) the last."""
    top = max(1, most // unit)
    sizes: Iterable[int] = (round(top / ratio**step) for step in range(count))
    return tuple(sorted({size * unit for size in sizes if size >= 1}))
