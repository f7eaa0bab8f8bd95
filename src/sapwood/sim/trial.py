"""A judge that is asked nothing twice, and keeps what it was asked."""

from __future__ import annotations

from collections.abc import Sequence

from sapwood.sim.design import Case, Design, Judge, Outcome, Row
from sapwood.sim.progress import Progress


class Trial:
    """Remembers the outcome of each case; `rows` are all of them, in the order in which they were judged."""

    def __init__(self, judge: Judge, progress: Progress | None = None) -> None:
        self._judge = judge
        self._progress = progress
        self._known: dict[Case, Outcome] = {}

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(Row(case, outcome) for case, outcome in self._known.items())

    def one(self, design: Design, traffic: float = 1.0, speed: float = 1.0) -> Outcome:
        case = Case(design, traffic, speed)
        return self.many([case])[case]

    def many(self, cases: Sequence[Case]) -> dict[Case, Outcome]:
        """Those that are new are judged together."""
        new = [case for case in dict.fromkeys(cases) if case not in self._known]
        if new:
            self._tell(new)
            self._known.update(zip(new, self._judge(new), strict=True))
        return {case: self._known[case] for case in cases}

    def _tell(self, new: Sequence[Case]) -> None:
        if self._progress is not None:
            self._progress(
                f"simulating: {described(new[0])}" + (f", and {len(new) - 1} more" if new[1:] else "")
            )


def described(case: Case) -> str:
    """In a few words, for progress."""
    design = case.design
    parts = [
        f"{design.replicas} × {design.capacity_tokens:,} tokens",
        design.eviction_policy,
        design.schedule_policy,
    ]
    parts += [f"pages of {design.page_size}"] if design.page_size > 1 else []
    parts += [f"traffic × {case.traffic:g}"] if case.traffic != 1 else []
    parts += [f"speed × {case.speed:g}"] if case.speed != 1 else []
    return ", ".join(parts)
