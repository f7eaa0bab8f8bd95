"""Flags of `sapwood plan` that say what is to be reached, and what is decided already."""

from __future__ import annotations

from typing import Annotated

import typer

from sapwood.cli.flags import filled, metavar, one_of, real, whole, words
from sapwood.cli.plan_ask import (
    ROUTINGS,
    Budget,
    budget_of,
    duration,
    share,
)
from sapwood.config import OrderName

TtftP95 = Annotated[
    float | None,
    typer.Option(
        "--ttft-p95",
        metavar="TIME",
        help="Goal: 5s or 500ms, say; a bare number is seconds.",
        parser=duration("--ttft-p95"),
    ),
]
TtftP50 = Annotated[
    float | None,
    typer.Option("--ttft-p50", metavar="TIME", help="Goal, of the median.", parser=duration("--ttft-p50")),
]
TtftP99 = Annotated[
    float | None,
    typer.Option("--ttft-p99", metavar="TIME", help="Goal.", parser=duration("--ttft-p99")),
]
TpotP95 = Annotated[
    float | None,
    typer.Option(
        "--tpot-p95",
        metavar="TIME",
        help="Goal, per further token of a reply: 50ms, say.",
        parser=duration("--tpot-p95"),
    ),
]
HitRate = Annotated[
    float | None,
    typer.Option("--hit-rate", metavar="RATE", help="Goal: 0.8 or 80%.", parser=share("--hit-rate")),
]
BudgetGoal = Annotated[
    Budget | None,
    typer.Option(
        "--budget",
        metavar="B",
        help="Goal: money per hour (20), or KV memory of all replicas (320GB).",
        parser=budget_of("--budget"),
    ),
]
Check = Annotated[
    bool, typer.Option("--check", help="Exit with 1 where no plan meets the goals; without it, with 0.")
]
Traffic = Annotated[
    float | None,
    typer.Option(
        "--traffic",
        metavar="X",
        help="Plan for so many times the users of the trace.",
        parser=real("--traffic", 0.01, 1000),
    ),
]
Capacity = Annotated[
    str | None,
    typer.Option(
        "--capacity",
        metavar="A,B",
        help="Sizes of KV memory, bytes (16GB) or tokens (100k; a bare number is tokens): of all replicas "
        "together in the curves, of each one in a plan. Default: up to all that can be reused, or that a "
        "replica holds.",
        parser=filled("--capacity"),
    ),
]
Policy = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="A,B|all",
        help="Eviction policies, the first the one that is looked at closely.",
        parser=filled("--policy"),
    ),
]
Replicas = Annotated[
    int | None,
    typer.Option("--replicas", metavar="N", help="Exactly so many.", parser=whole("--replicas", 1, 4096)),
]
PageSize = Annotated[
    int | None,
    typer.Option(
        "--page-size",
        metavar="N",
        help="Tokens per page; default: 1, in a plan the best of 1, 16 and 64.",
        parser=whole("--page-size", 1, 256),
    ),
]
SchedulePolicy = Annotated[
    OrderName | None,
    typer.Option(
        "--schedule-policy",
        metavar=metavar(OrderName),
        help="Order of the waiting requests.",
        parser=one_of("--schedule-policy", words(OrderName)),
    ),
]
Routing = Annotated[
    str | None,
    typer.Option(
        "--routing",
        metavar="|".join(ROUTINGS),
        help="Who gets which request.",
        parser=one_of("--routing", ROUTINGS),
    ),
]
