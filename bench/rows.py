"""A row of a result: one measure of one scenario, ours against a peer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from .stats import Pair, median, ratios

NOISY_FACTOR = 1.25
"""Ratios of one row that differ by more than this are called noisy in its notes."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on the median ratio, or on our own median."""

    of: Literal["ratio", "ours"]
    bound: Literal["at least", "at most"]
    value: float

    def met(self, *, ours: float, ratio: float | None) -> bool | None:
        """None where there is no ratio to judge by."""
        value = ours if self.of == "ours" else ratio
        if value is None:
            return None
        return value >= self.value if self.bound == "at least" else value <= self.value


@dataclass(frozen=True, slots=True)
class Measure:
    name: str
    unit: str
    better: Literal["higher", "lower"]
    goal: Goal | None = None
    counted: bool = False
    """Not timed: pairs that differ had other input, which is no noise."""


@dataclass(frozen=True, slots=True)
class Row:
    """Attributes:
    pairs: in the order taken, never empty.
    against: who or what the peer's values are of; None without a peer.
    regime: what this scenario holds fixed (tokens, concurrency, …).
    detail: further figures of ours, by name.
    remark: a few words that stand in the row itself.
    """

    scenario: str
    measure: Measure
    pairs: Sequence[Pair]
    against: str | None = None
    regime: Mapping[str, Any] = field(default_factory=dict)
    detail: Mapping[str, float] = field(default_factory=dict)
    notes: Sequence[str] = ()
    remark: str = ""

    def json(self) -> dict[str, Any]:
        """The row as `interface.md` has it (`scenario`, `ours`, `peer`, `ratio`), and more."""
        ours = median([pair.ours for pair in self.pairs])
        peers = [pair.peer for pair in self.pairs if pair.peer is not None]
        ratio = ratios(self.pairs)
        notes = list(self.notes)
        if ratio is not None and ratio.factor > NOISY_FACTOR and not self.measure.counted:
            notes.append(f"noisy: ratios differ by a factor of {ratio.factor:.2f}")
        goal = self.measure.goal
        return {
            "scenario": self.scenario,
            "measure": self.measure.name,
            "unit": self.measure.unit,
            "better": self.measure.better,
            "against": self.against,
            "ours": tidy(ours),
            "peer": tidy(median(peers)) if peers else None,
            "ratio": tidy(ratio.median) if ratio else None,
            "ratio_low": tidy(ratio.low) if ratio else None,
            "ratio_high": tidy(ratio.high) if ratio else None,
            "goal": None if goal is None else _goal_json(goal, ours, ratio.median if ratio else None),
            "pairs": [
                {"ours": tidy(pair.ours), "peer": None if pair.peer is None else tidy(pair.peer)}
                for pair in self.pairs
            ],
            "regime": dict(self.regime),
            "detail": {name: tidy(value) for name, value in self.detail.items()},
            "notes": notes,
            "remark": self.remark,
        }


def tidy(value: float) -> float:
    """Five digits are more than any measurement here deserves."""
    return float(f"{value:.5g}")


def _goal_json(goal: Goal, ours: float, ratio: float | None) -> dict[str, Any]:
    return {
        "of": goal.of,
        "bound": goal.bound,
        "value": goal.value,
        "met": goal.met(ours=ours, ratio=ratio),
    }
