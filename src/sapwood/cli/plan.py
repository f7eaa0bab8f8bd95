"""`sapwood plan`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from sapwood.cli.flags import file_name, filled, metavar, one_of, real, size, whole, words
from sapwood.cli.plan_ask import (
    CHUNK_TOKENS,
    MAX_RUNNING,
    ROUTINGS,
    Ask,
    Budget,
    amounts,
    budget_of,
    duration,
    policies_of,
    share,
    timed_of,
)
from sapwood.cli.plan_model import KvDtype, StoredAs, model_of
from sapwood.config import OrderName
from sapwood.errors import UsageError

SEEDS = 8
"""Of --reproduce: half a minute on two cores."""
MODEL, HARDWARE = "llama-3.1-8b", "h100"
"""The defaults: a model whose context is as long as the prompts of today's traces."""


def plan(
    context: typer.Context,
    trace: Annotated[
        str | None,
        typer.Argument(
            help="Requests, in any of the formats that docs/capture.md lists.",
            metavar="[TRACE]",
            show_default=False,
            parser=file_name("TRACE"),
        ),
    ] = None,
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
    ttft_p95: Annotated[
        float | None,
        typer.Option(
            "--ttft-p95",
            metavar="TIME",
            help="Goal: 5s or 500ms, say; a bare number is seconds.",
            parser=duration("--ttft-p95"),
        ),
    ] = None,
    ttft_p50: Annotated[
        float | None,
        typer.Option(
            "--ttft-p50", metavar="TIME", help="Goal, of the median.", parser=duration("--ttft-p50")
        ),
    ] = None,
    ttft_p99: Annotated[
        float | None,
        typer.Option("--ttft-p99", metavar="TIME", help="Goal.", parser=duration("--ttft-p99")),
    ] = None,
    tpot_p95: Annotated[
        float | None,
        typer.Option(
            "--tpot-p95",
            metavar="TIME",
            help="Goal, per further token of a reply: 50ms, say.",
            parser=duration("--tpot-p95"),
        ),
    ] = None,
    hit_rate: Annotated[
        float | None,
        typer.Option("--hit-rate", metavar="RATE", help="Goal: 0.8 or 80%.", parser=share("--hit-rate")),
    ] = None,
    budget: Annotated[
        Budget | None,
        typer.Option(
            "--budget",
            metavar="B",
            help="Goal: money per hour (20), or KV memory of all replicas (320GB).",
            parser=budget_of("--budget"),
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 where no plan meets the goals; without it, with 0.")
    ] = False,
    traffic: Annotated[
        float | None,
        typer.Option(
            "--traffic",
            metavar="X",
            help="Plan for so many times the users of the trace.",
            parser=real("--traffic", 0.01, 1000),
        ),
    ] = None,
    capacity: Annotated[
        str | None,
        typer.Option(
            "--capacity",
            metavar="A,B",
            help="Sizes of KV memory, bytes (16GB) or tokens (100k; a bare number is tokens): of all replicas "
            "together in the curves, of each one in a plan. Default: up to all that can be reused, or that a "
            "replica holds.",
            parser=filled("--capacity"),
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            metavar="A,B|all",
            help="Eviction policies, the first the one that is looked at closely.",
            parser=filled("--policy"),
        ),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option("--replicas", metavar="N", help="Exactly so many.", parser=whole("--replicas", 1, 4096)),
    ] = None,
    page_size: Annotated[
        int | None,
        typer.Option(
            "--page-size",
            metavar="N",
            help="Tokens per page; default: 1, in a plan the best of 1, 16 and 64.",
            parser=whole("--page-size", 1, 256),
        ),
    ] = None,
    schedule_policy: Annotated[
        OrderName | None,
        typer.Option(
            "--schedule-policy",
            metavar=metavar(OrderName),
            help="Order of the waiting requests.",
            parser=one_of("--schedule-policy", words(OrderName)),
        ),
    ] = None,
    routing: Annotated[
        str | None,
        typer.Option(
            "--routing",
            metavar="|".join(ROUTINGS),
            help="Who gets which request.",
            parser=one_of("--routing", ROUTINGS),
        ),
    ] = None,
    model_shape: Annotated[
        str | None,
        typer.Option(
            "--model-shape",
            metavar="NAME|FILE",
            help=f"A name of docs/plan.md's table, or a config.json; default: {MODEL}.",
            parser=file_name("--model-shape"),
        ),
    ] = None,
    weights: StoredAs = None,
    kv_dtype: KvDtype = None,
    hardware: Annotated[
        str | None,
        typer.Option(
            "--hardware",
            metavar="NAME",
            help=f"A device of a replica, likewise; default: {HARDWARE}.",
            parser=filled("--hardware"),
        ),
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option(
            "--devices",
            metavar="N",
            help="Of that kind, that a replica spans; default: 1.",
            parser=whole("--devices", 1, 1024),
        ),
    ] = None,
    peak: Annotated[
        float | None,
        typer.Option("--peak", metavar="TFLOPS", help="Dense TFLOP/s.", parser=real("--peak", 1e-3, 1e7)),
    ] = None,
    mfu: Annotated[
        float | None,
        typer.Option(
            "--mfu", metavar="SHARE", help="Of the peak; default: 0.5.", parser=real("--mfu", 0.001, 1)
        ),
    ] = None,
    mbu: Annotated[
        float | None,
        typer.Option(
            "--mbu", metavar="SHARE", help="Of bandwidth; default: 0.8.", parser=real("--mbu", 0.001, 1)
        ),
    ] = None,
    bandwidth: Annotated[
        int | None,
        typer.Option(
            "--bandwidth",
            metavar="SIZE",
            help="Of memory, per second: 3.35TB.",
            parser=size("--bandwidth"),
        ),
    ] = None,
    cost: Annotated[
        str | None,
        typer.Option(
            "--cost",
            metavar="formula|text|FILE",
            help="Where times come from: a capture, results of the bench, or a layer profile; default: formula.",
            parser=file_name("--cost"),
        ),
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option(
            "--memory", metavar="SIZE", help="Of a device, weights included: 80GB.", parser=size("--memory")
        ),
    ] = None,
    memory_utilization: Annotated[
        float | None,
        typer.Option(
            "--memory-utilization",
            metavar="SHARE",
            help="Of the memory, for weights and KV; the rest is kept back. Default: 0.9.",
            parser=real("--memory-utilization", 0.01, 1),
        ),
    ] = None,
    price: Annotated[
        float | None,
        typer.Option("--price", metavar="P", help="Of a device's hour.", parser=real("--price", 0, 1e9)),
    ] = None,
    chunk_tokens: Annotated[
        int | None,
        typer.Option(
            "--chunk-tokens",
            metavar="N",
            help=f"Most tokens computed in one step; default: {CHUNK_TOKENS}.",
            parser=whole("--chunk-tokens", 1),
        ),
    ] = None,
    max_running: Annotated[
        int | None,
        typer.Option(
            "--max-running",
            metavar="N",
            help=f"Most sequences that run at once; default: {MAX_RUNNING}.",
            parser=whole("--max-running", 1),
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            "--tokenizer",
            metavar="PATH|MODEL|bytes",
            help="For traces that hold texts: a tokenizer.json, its folder, or a model; default: by their usage, or 4 "
            "bytes a token.",
            parser=file_name("--tokenizer"),
        ),
    ] = None,
    output_tokens: Annotated[
        int | None,
        typer.Option(
            "--output-tokens",
            metavar="N",
            help="Of each answer of unknown length; default: the mean of the known ones, or 256.",
            parser=whole("--output-tokens", 0, 10**6),
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            metavar="N",
            help="For what a trace leaves open: when its sessions begin, or, of statistics, all.",
            parser=whole("--seed", 0),
        ),
    ] = None,
    in_a_row: Annotated[
        bool,
        typer.Option(
            "--in-a-row",
            help="Sessions whose beginnings are not known come one after another, not interleaved.",
        ),
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", metavar="N", help="Only the first N requests.", parser=whole("--limit", 1, 10**12)
        ),
    ] = None,
    until: Annotated[
        float | None,
        typer.Option(
            "--duration", metavar="TIME", help="Only the first 10m, say.", parser=duration("--duration")
        ),
    ] = None,
    timed: Annotated[
        int | None,
        typer.Option(
            "--timed",
            metavar="N|all",
            help="Simulate so many requests for times, 0 for none; default: what takes some ten seconds.",
            parser=timed_of("--timed"),
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Times for every row, and what-ifs without goals too.")
    ] = False,
    no_what_ifs: Annotated[
        bool, typer.Option("--no-what-ifs", help="The plan alone: half the time, or less.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="N",
            help="Processes; default: one per core.",
            parser=whole("--workers", 1, 256),
        ),
    ] = None,
    html: Annotated[
        str | None,
        typer.Option(
            "--html",
            metavar="FILE",
            help="Also write the report as one page, with plots.",
            parser=file_name("--html"),
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout, not the table.")] = False,
) -> None:
    """Answer how much memory, which policy and how many replicas, with the cache and the scheduler that serve."""
    of_trace = {
        "TRACE": trace,
        "--ttft-p95": ttft_p95,
        "--ttft-p50": ttft_p50,
        "--ttft-p99": ttft_p99,
        "--tpot-p95": tpot_p95,
        "--hit-rate": hit_rate,
        "--check": check or None,
        "--traffic": traffic,
        "--no-what-ifs": no_what_ifs or None,
        "--budget": budget,
        "--capacity": capacity,
        "--policy": policy,
        "--replicas": replicas,
        "--page-size": page_size,
        "--schedule-policy": schedule_policy,
        "--routing": routing,
        "--model-shape": model_shape,
        "--weights": weights,
        "--kv-dtype": kv_dtype,
        "--hardware": hardware,
        "--devices": devices,
        "--peak": peak,
        "--mfu": mfu,
        "--mbu": mbu,
        "--bandwidth": bandwidth,
        "--cost": cost,
        "--memory": memory,
        "--memory-utilization": memory_utilization,
        "--price": price,
        "--chunk-tokens": chunk_tokens,
        "--max-running": max_running,
        "--tokenizer": tokenizer,
        "--output-tokens": output_tokens,
        "--seed": seed,
        "--in-a-row": in_a_row or None,
        "--limit": limit,
        "--duration": until,
        "--timed": timed,
        "--full": full or None,
        "--html": html,
    }
    _check(reproduce, of_trace, {"--seeds": seeds, "--any-seeds": any_seeds or None})
    if reproduce:
        from sapwood.cli.plan_reproduce import plan_reproduce

        return plan_reproduce(seeds or SEEDS, any_seeds=any_seeds, workers=workers, as_json=json)
    from sapwood.cli.plan_capture import served_by
    from sapwood.cli.plan_cost import assumed, cost_named
    from sapwood.cli.plan_hardware import replica_of
    from sapwood.cli.plan_trace import plan_trace

    served = served_by(Path(trace or ""))
    values = {
        "capacities": None if capacity is None else amounts("--capacity")(capacity),
        "policies": None if policy is None else policies_of("--policy")(policy),
        "chunk_tokens": chunk_tokens or served.chunk_tokens,
        "max_running": max_running or served.max_running,
        "budget": budget,
    }
    model = model_of(model_shape or served.model or MODEL, weights, kv_dtype)
    said = {
        "peak_flops": None if peak is None else peak * 1e12,
        "bandwidth": bandwidth,
        "memory_bytes": memory,
        "mfu": mfu,
        "mbu": mbu,
        "memory_utilization": memory_utilization,
        "price_per_hour": price,
    }
    replica = replica_of(hardware or HARDWARE, devices or 1, said)
    ask = Ask(
        Path(trace or ""),
        model,
        replica,
        cost_named(cost, model, replica),
        replicas=replicas,
        page_size=page_size,
        schedule_policy=schedule_policy,
        routing=routing,  # type: ignore[arg-type]
        ttft_p95=ttft_p95,
        ttft_p50=ttft_p50,
        ttft_p99=ttft_p99,
        tpot_p95=tpot_p95,
        hit_rate=hit_rate,
        traffic=traffic or 1.0,
        what_ifs=not no_what_ifs,
        limit=limit,
        duration=until,
        timed=timed,
        full=full,
        workers=workers,
        output_tokens=output_tokens,
        seed=seed or 0,
        in_a_row=in_a_row,
        served=tuple(served.notes(of_trace)),
        assumed=assumed(
            cost, {"--model-shape": model_shape or served.model, "--hardware": hardware or memory}
        ),
        command=shlex.join(["sapwood", *context.obj]),
        **{name: value for name, value in values.items() if value is not None},  # type: ignore[arg-type]
    )
    if check and not ask.has_goals:
        raise UsageError("--check needs goals", hint="--ttft-p95 5s, say")
    met = plan_trace(ask, tokenizer=tokenizer, html=None if html is None else Path(html), as_document=json)
    if check and not met:
        raise typer.Exit(1)
    return None


def _check(reproduce: bool, of_trace: Mapping[str, Any], of_reproduce: Mapping[str, Any]) -> None:
    """Raises UsageError for flags that do not go together."""
    wrong = of_trace if reproduce else of_reproduce
    for flag, value in wrong.items():
        if value is not None:
            raise UsageError(f"{flag} goes {'without' if reproduce else 'with'} --reproduce")
    if not reproduce and of_trace["TRACE"] is None:
        raise UsageError("TRACE is missing", hint="sapwood plan TRACE, or sapwood plan --reproduce")
