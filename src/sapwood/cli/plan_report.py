"""All that `sapwood plan TRACE` found out, as values; text, JSON and HTML show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sapwood.sim import Goals, Outcome, Plan, Row, Shift, WhatIf


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Hit rate without any limit to memory, and what it counts, in a few words and in one line."""

    name: str
    text: str
    hit_rate: float


@dataclass(frozen=True, slots=True)
class Traffic:
    """What was asked, for people.

    Attributes:
        seconds: between the first arrival and the last.
        stored_tokens: of different blocks: memory beyond it is of no use.
        ceilings: by several definitions; the first is the one that all other hit rates have.
        notes: what a reader left out or made up.
        assumed: what all figures rest on.
    """

    name: str
    requests: int
    seconds: float
    prompt_tokens: int
    output_tokens: int
    unit_tokens: int
    sessions: int
    stored_tokens: int
    ceilings: tuple[Ceiling, ...]
    notes: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()

    @property
    def ceiling(self) -> float:
        return self.ceilings[0].hit_rate


@dataclass(frozen=True, slots=True)
class Machine:
    """One replica, as far as it matters here.

    Attributes:
        cost: the name of the cost model: where the times come from.
        kv_bytes: of one token.
        most_tokens: of KV, beside the weights and what is kept back.
        price_per_hour: of all its devices; None where nobody said.
        replicas: so many are there; 1 where nobody said.
        devices: that it spans.
    """

    model: str
    hardware: str
    cost: str
    kv_bytes: float
    most_tokens: int
    price_per_hour: float | None
    replicas: int = 1
    devices: int = 1

    @property
    def held_tokens(self) -> int:
        """Of KV in all."""
        return self.replicas * self.most_tokens

    def gigabytes(self, tokens: float) -> float:
        return tokens * self.kv_bytes / 1e9


@dataclass(frozen=True, slots=True)
class Point:
    """Attributes:
    hit_rate: by replay of the whole trace.
    outcome: by simulation of the timed requests; None where nothing was simulated.
    cost: of a million prompt tokens; None where nobody said what an hour costs.
    refused: requests of the whole trace that are longer than what each replica then holds.
    """

    capacity_tokens: int
    hit_rate: float
    outcome: Outcome | None = None
    cost: float | None = None
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """One policy's curve, the points by ascending capacity."""

    policy: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Knee:
    """A size beyond which more memory brings clearly less.

    Attributes:
        gain_per_gb: points of hit rate per further GB just before it and just after.
    """

    capacity_tokens: int
    hit_rate: float
    gain_before: float
    gain_after: float


@dataclass(frozen=True, slots=True)
class Curves:
    """Attributes:
    lines: the first is the one that knees and gains are of.
    optimum: clairvoyant eviction, a ceiling for all policies.
    gains: points of hit rate that a further GB brings, at each capacity of the first line but the last.
    """

    lines: tuple[Line, ...]
    optimum: Line | None
    knees: tuple[Knee, ...]
    gains: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Timed:
    """What was simulated in time.

    Attributes:
        requests: so many that follow each other in the trace.
        seconds: between the first of them and the last.
        chunk_tokens, max_running: of the scheduler.
        begins: seconds from the first arrival of the trace to the first of these.
    """

    requests: int
    seconds: float
    chunk_tokens: int
    max_running: int
    begins: float = 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """Attributes:
    command: that prints it, for people who want to repeat it.
    basis: the design that the what-ifs start from, and what came of it: the plan's answer where there are goals.
    """

    command: str
    traffic: Traffic
    machine: Machine
    curves: Curves
    timed: Timed | None = None
    goals: Goals = field(default_factory=Goals)
    plan: Plan | None = None
    basis: Row | None = None
    what_ifs: tuple[WhatIf, ...] = ()
    shifts: tuple[Shift, ...] = ()
    definitions: Mapping[str, str] = field(default_factory=dict)
