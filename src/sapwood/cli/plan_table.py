"""Columns of text, right-aligned but for the first, and a curve drawn with characters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

WIDTH, HEIGHT = 60, 11
MARKS = "●○·"
"""Of up to three curves; where they meet, the first is seen."""


@dataclass(frozen=True, slots=True)
class Bar:
    """How long one is below a number, 0 to 1; `good` is whether the number reaches its goal, None without one."""

    length: float
    good: bool | None = None


@dataclass(frozen=True, slots=True)
class Scale:
    """Of a column's bars.

    Attributes:
        top: the number that the longest one is of, in words.
        goal: in words; None without one.
        mark: where along the bars the goal is, 0 to 1.
    """

    top: str
    goal: str | None = None
    mark: float | None = None


@dataclass(frozen=True, slots=True)
class TableRow:
    """Attributes:
    cells: words, one for each column.
    here: whether it stands out.
    good: whether what the goals say of it is good news.
    bars: by the header of their column, where bars can be drawn.
    """

    cells: tuple[str, ...]
    here: bool = False
    good: bool = True
    bars: Mapping[str, Bar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Table:
    """Words in rows and columns, for whoever shows them.

    Attributes:
        scales: of bars, by the header of their column.
    """

    header: tuple[str, ...]
    rows: tuple[TableRow, ...]
    scales: Mapping[str, Scale] = field(default_factory=dict)

    @classmethod
    def of(
        cls, header: Sequence[str], rows: Sequence[TableRow], scales: Mapping[str, Scale] | None = None
    ) -> Table:
        """Without the columns that are empty in all rows."""
        kept = [k for k in range(len(header)) if any(row.cells[k] for row in rows)]
        return cls(
            tuple(header[k] for k in kept),
            tuple(replace(row, cells=tuple(row.cells[k] for k in kept)) for row in rows),
            scales or {},
        )


def lines(table: Table) -> Iterator[str]:
    """Of text, indented by two."""
    cells = [table.header, *(row.cells for row in table.rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        first, *others = (
            cell.rjust(width) if k else cell.ljust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  " + "  ".join([first, *others]).rstrip()


def plot(curves: Sequence[Sequence[tuple[float, float]]], left: str, right: str) -> Iterator[str]:
    """Rates of 0 to 1 over sizes on a logarithmic axis that all curves share; `left` and `right` name its ends.

    A curve is (size, rate) pairs by ascending size; at least two sizes are needed for anything to be drawn.
    """
    sizes = [math.log(size) for curve in curves for size, _ in curve]
    if not sizes or min(sizes) == max(sizes):
        return
    top = max(0.05, math.ceil(20 * max(rate for curve in curves for _, rate in curve)) / 20)
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]
    for mark, curve in reversed(list(zip(MARKS, curves, strict=False))):
        for column in range(WIDTH):
            at = min(sizes) + column / (WIDTH - 1) * (max(sizes) - min(sizes))
            rate = _between(curve, at)
            if rate is not None:
                grid[HEIGHT - 1 - round(rate / top * (HEIGHT - 1))][column] = mark
    for number, row in enumerate(grid):
        rate = top * (HEIGHT - 1 - number) / (HEIGHT - 1)
        label = f"{100 * rate:.0f} %" if number in (0, HEIGHT // 2, HEIGHT - 1) else ""
        yield f"  {label:>5} ┤{''.join(row)}".rstrip()
    yield f"        └{'─' * WIDTH}"
    yield f"         {left}{right.rjust(WIDTH - len(left))}"


def _between(curve: Sequence[tuple[float, float]], at: float) -> float | None:
    """By a straight line between the two points around it; None outside the curve."""
    for (size, rate), (larger, next_rate) in pairwise(curve):
        low, high = math.log(size), math.log(larger)
        if low - 1e-9 <= at <= high + 1e-9:
            return rate + (next_rate - rate) * (at - low) / (high - low)
    return None
