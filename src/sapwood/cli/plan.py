"""`sapwood plan`."""

from __future__ import annotations

from typing import Annotated

import typer

from sapwood.cli.flags import whole
from sapwood.errors import UsageError

SEEDS = 6
"""Of --reproduce: half a minute on two cores."""


def plan(
    reproduce: Annotated[
        bool,
        typer.Option("--reproduce", help="Run the source text's simulation again: its figures beside ours."),
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            metavar="N",
            help=f"--reproduce: how many, {SEEDS} by default; those whose trace is as large as the text's.",
            parser=whole("--seeds", 1, 1000),
        ),
    ] = None,
    any_seeds: Annotated[
        bool, typer.Option("--any-seeds", help="--reproduce: the first ones, whatever their trace.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout, not the table.")] = False,
) -> None:
    """Answer how much memory, which policy and how many replicas, with the cache and the scheduler that serve."""
    if not reproduce:
        given = [flag for flag, value in (("--seeds", seeds), ("--any-seeds", any_seeds)) if value]
        if given:
            raise UsageError(f"{given[0]} goes with --reproduce")
        raise UsageError("there is nothing to plan", hint="sapwood plan --reproduce")
    from sapwood.cli.plan_reproduce import plan_reproduce

    plan_reproduce(seeds or SEEDS, any_seeds=any_seeds, as_json=json)
