"""Flags of `sapwood plan` that say what a replica is, and where its times come from."""

from __future__ import annotations

from typing import Annotated

import typer

from sapwood.cli.flags import file_name, filled, real, size, whole
from sapwood.cli.plan_ask import (
    CHUNK_TOKENS,
    HARDWARE,
    MAX_RUNNING,
    MODEL,
)

ModelShape = Annotated[
    str | None,
    typer.Option(
        "--model-shape",
        metavar="NAME|FILE",
        help=f"A name of docs/plan.md's table, or a config.json; default: {MODEL}.",
        parser=file_name("--model-shape"),
    ),
]
Hardware = Annotated[
    str | None,
    typer.Option(
        "--hardware",
        metavar="NAME",
        help=f"A device of a replica, likewise; default: {HARDWARE}.",
        parser=filled("--hardware"),
    ),
]
Devices = Annotated[
    int | None,
    typer.Option(
        "--devices",
        metavar="N",
        help="Of that kind, that a replica spans; default: 1.",
        parser=whole("--devices", 1, 1024),
    ),
]
Peak = Annotated[
    float | None,
    typer.Option("--peak", metavar="TFLOPS", help="Dense TFLOP/s.", parser=real("--peak", 1e-3, 1e7)),
]
Mfu = Annotated[
    float | None,
    typer.Option("--mfu", metavar="SHARE", help="Of the peak; default: 0.5.", parser=real("--mfu", 0.001, 1)),
]
Mbu = Annotated[
    float | None,
    typer.Option(
        "--mbu", metavar="SHARE", help="Of bandwidth; default: 0.8.", parser=real("--mbu", 0.001, 1)
    ),
]
Bandwidth = Annotated[
    int | None,
    typer.Option(
        "--bandwidth",
        metavar="SIZE",
        help="Of memory, per second: 3.35TB.",
        parser=size("--bandwidth"),
    ),
]
Cost = Annotated[
    str | None,
    typer.Option(
        "--cost",
        metavar="formula|text|FILE",
        help="Where times come from: a capture, results of the bench, or a layer profile; default: formula.",
        parser=file_name("--cost"),
    ),
]
Memory = Annotated[
    int | None,
    typer.Option(
        "--memory", metavar="SIZE", help="Of a device, weights included: 80GB.", parser=size("--memory")
    ),
]
MemoryUtilization = Annotated[
    float | None,
    typer.Option(
        "--memory-utilization",
        metavar="SHARE",
        help="Of the memory, for weights and KV; the rest is kept back. Default: 0.9.",
        parser=real("--memory-utilization", 0.01, 1),
    ),
]
Price = Annotated[
    float | None,
    typer.Option("--price", metavar="P", help="Of a device's hour.", parser=real("--price", 0, 1e9)),
]
ChunkTokens = Annotated[
    int | None,
    typer.Option(
        "--chunk-tokens",
        metavar="N",
        help=f"Most tokens computed in one step; default: {CHUNK_TOKENS}.",
        parser=whole("--chunk-tokens", 1),
    ),
]
MaxRunning = Annotated[
    int | None,
    typer.Option(
        "--max-running",
        metavar="N",
        help=f"Most sequences that run at once; default: {MAX_RUNNING}.",
        parser=whole("--max-running", 1),
    ),
]
