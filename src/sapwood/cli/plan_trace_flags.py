"""Flags of `sapwood plan` that say what is read, how much of it is looked at, and what is written."""

from __future__ import annotations

from typing import Annotated

import typer

from sapwood.cli.flags import file_name, whole
from sapwood.cli.plan_ask import (
    SEEDS,
    duration,
    timed_of,
)

Trace = Annotated[
    str | None,
    typer.Argument(
        help="Requests, in any of the formats that docs/capture.md lists.",
        metavar="[TRACE]",
        show_default=False,
        parser=file_name("TRACE"),
    ),
]
Reproduce = Annotated[
    bool,
    typer.Option("--reproduce", help="Run the source text's simulation again: its figures beside ours."),
]
Seeds = Annotated[
    int | None,
    typer.Option(
        "--seeds",
        metavar="N",
        help=f"--reproduce: how many, {SEEDS} by default; those whose trace is as large as the text's.",
        parser=whole("--seeds", 1, 1000),
    ),
]
AnySeeds = Annotated[
    bool, typer.Option("--any-seeds", help="--reproduce: the first ones, whatever their trace.")
]
Tokenizer = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        metavar="PATH|MODEL|bytes",
        help="For traces that hold texts: a tokenizer.json, its folder, or a model; default: by their usage, or 4 "
        "bytes a token.",
        parser=file_name("--tokenizer"),
    ),
]
OutputTokens = Annotated[
    int | None,
    typer.Option(
        "--output-tokens",
        metavar="N",
        help="Of each answer of unknown length; default: the mean of the known ones, or 256.",
        parser=whole("--output-tokens", 0, 10**6),
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        help="For what a trace leaves open: when its sessions begin, or, of statistics, all.",
        parser=whole("--seed", 0),
    ),
]
InARow = Annotated[
    bool,
    typer.Option(
        "--in-a-row",
        help="Sessions whose beginnings are not known come one after another, not interleaved.",
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit", metavar="N", help="Only the first N requests.", parser=whole("--limit", 1, 10**12)
    ),
]
Until = Annotated[
    float | None,
    typer.Option(
        "--duration", metavar="TIME", help="Only the first 10m, say.", parser=duration("--duration")
    ),
]
Timed = Annotated[
    int | None,
    typer.Option(
        "--timed",
        metavar="N|all",
        help="Simulate so many requests for times, 0 for none; default: what takes some ten seconds.",
        parser=timed_of("--timed"),
    ),
]
Full = Annotated[bool, typer.Option("--full", help="Times for every row, and what-ifs without goals too.")]
NoWhatIfs = Annotated[bool, typer.Option("--no-what-ifs", help="The plan alone: half the time, or less.")]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        help="Processes; default: one per core.",
        parser=whole("--workers", 1, 256),
    ),
]
Html = Annotated[
    str | None,
    typer.Option(
        "--html",
        metavar="FILE",
        help="Also write the report as one page, with plots.",
        parser=file_name("--html"),
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, not the table.")]
