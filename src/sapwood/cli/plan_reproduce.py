"""`sapwood plan --reproduce`: the source text's figures beside ours."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from rich.console import Console
from rich.table import Table

from sapwood.cli.plan_numbers import counted
from sapwood.cli.plan_progress import waiting
from sapwood.cli.talk import Talk
from sapwood.sim.reproduce import Reproduction, Row, reproduce, seeds_like_the_text
from sapwood.sim.text_figures import DEFINITIONS

_DIGITS: Mapping[str, str] = MappingProxyType(
    {"TFLOP": ".2f", "M tokens": ".2f", "requests": ".0f", "×": ".0f", "MB": ".0f"}
)
"""By unit; all others have one after the point."""


def plan_reproduce(count: int, *, any_seeds: bool, workers: int | None, as_json: bool) -> None:
    """Prints a table, or the JSON document. Progress goes to stderr."""
    seeds = tuple(range(count)) if any_seeds else seeds_like_the_text(count)
    with waiting(Talk(), "simulating") as step:
        found = reproduce(seeds, workers=workers, progress=step)
    chosen = (
        "the first ones, whatever their trace"
        if any_seeds
        else "the first whose trace is within 2 % of the text's in requests and in prompt tokens, by nothing else"
    )
    if as_json:
        json.dump(_document(found, chosen), sys.stdout, indent=1)
        print()
    else:
        _show(found, chosen)


def _document(found: Reproduction, chosen: str) -> dict[str, Any]:
    return {
        "rows": _objects(found.rows),
        "max_difference": round(found.max_difference, 3),
        "worked_example": _objects(found.worked),
        "left_out": _objects(found.left_out),
        "seeds": list(found.seeds),
        "definitions": {**DEFINITIONS, "seeds": chosen},
    }


def _objects(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [
        {
            "name": row.name,
            "text": row.text,
            "ours": round(row.ours, 3),
            "unit": row.unit,
            "difference": None if row.difference is None else round(row.difference, 3),
            "deviation": round(row.deviation, 3),
        }
        for row in rows
    ]


def _show(found: Reproduction, chosen: str) -> None:
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = 100
    tables = (
        _table("The worked example", found.worked, spread=False),
        _table(f"\nThe simulation, mean of {counted(len(found.seeds), 'seed')}", found.rows),
        _table("\nWhat the text leaves out, by the same seeds", found.left_out, compared=False),
    )
    with console.capture() as captured:
        console.print(*tables, sep="")
    for line in captured.get().splitlines():  # Columns are filled up with blanks, the last one too.
        print(line.rstrip())
    console.print(f"\nThe largest difference of a hit rate is {found.max_difference:.1f} points.\n")
    seeds = f"{', '.join(map(str, found.seeds))}: {chosen}"
    for word, meaning in {**DEFINITIONS, "seeds": seeds}.items():
        console.print(f"{word}: {meaning}.", soft_wrap=True)


def _table(title: str, rows: Sequence[Row], *, compared: bool = True, spread: bool = True) -> Table:
    """Without the columns of the text where it has nothing, and of the seeds where there are none."""
    columns = ["text"] * compared + ["ours"] + ["±"] * spread + ["difference"] * compared
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("", min_width=38)
    for column in columns:
        table.add_column(column, justify="right", min_width=8)
    table.add_column("")
    for row in rows:
        cells = _cells(row)
        table.add_row(row.name, *(cells[column] for column in columns), row.unit)
    return table


def _cells(row: Row) -> dict[str, str]:
    digits = _DIGITS.get(row.unit, ".1f")
    return {
        "text": "" if row.text is None else f"{row.text:{digits}}",
        "ours": f"{row.ours:{digits}}",
        "±": f"{row.deviation:{digits}}",
        "difference": "" if row.difference is None else _signed(row.difference, digits),
    }


def _signed(difference: float, digits: str) -> str:
    """Without a sign where nothing is left of it."""
    return f"{0:{digits}}" if float(f"{difference:{digits}}") == 0 else f"{difference:+{digits}}"
