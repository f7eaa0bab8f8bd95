"""`sapwood plan`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from sapwood.cli import plan_goal_flags as goal_flags
from sapwood.cli import plan_replica_flags as replica_flags
from sapwood.cli import plan_trace_flags as trace_flags
from sapwood.cli.plan_ask import SEEDS
from sapwood.cli.plan_model import KvDtype, StoredAs
from sapwood.errors import UsageError

_GOALS = ("--ttft-p95", "--ttft-p50", "--ttft-p99", "--tpot-p95", "--hit-rate", "--budget")


def plan(
    context: typer.Context,
    trace: trace_flags.Trace = None,
    reproduce: trace_flags.Reproduce = False,
    seeds: trace_flags.Seeds = None,
    any_seeds: trace_flags.AnySeeds = False,
    ttft_p95: goal_flags.TtftP95 = None,
    ttft_p50: goal_flags.TtftP50 = None,
    ttft_p99: goal_flags.TtftP99 = None,
    tpot_p95: goal_flags.TpotP95 = None,
    hit_rate: goal_flags.HitRate = None,
    budget: goal_flags.BudgetGoal = None,
    check: goal_flags.Check = False,
    traffic: goal_flags.Traffic = None,
    capacity: goal_flags.Capacity = None,
    policy: goal_flags.Policy = None,
    replicas: goal_flags.Replicas = None,
    page_size: goal_flags.PageSize = None,
    schedule_policy: goal_flags.SchedulePolicy = None,
    routing: goal_flags.Routing = None,
    model_shape: replica_flags.ModelShape = None,
    weights: StoredAs = None,
    kv_dtype: KvDtype = None,
    hardware: replica_flags.Hardware = None,
    devices: replica_flags.Devices = None,
    peak: replica_flags.Peak = None,
    mfu: replica_flags.Mfu = None,
    mbu: replica_flags.Mbu = None,
    bandwidth: replica_flags.Bandwidth = None,
    cost: replica_flags.Cost = None,
    memory: replica_flags.Memory = None,
    memory_utilization: replica_flags.MemoryUtilization = None,
    price: replica_flags.Price = None,
    chunk_tokens: replica_flags.ChunkTokens = None,
    max_running: replica_flags.MaxRunning = None,
    tokenizer: trace_flags.Tokenizer = None,
    output_tokens: trace_flags.OutputTokens = None,
    seed: trace_flags.Seed = None,
    in_a_row: trace_flags.InARow = False,
    limit: trace_flags.Limit = None,
    until: trace_flags.Until = None,
    timed: trace_flags.Timed = None,
    full: trace_flags.Full = False,
    no_what_ifs: trace_flags.NoWhatIfs = False,
    workers: trace_flags.Workers = None,
    html: trace_flags.Html = None,
    json: trace_flags.Json = False,
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
    from sapwood.cli.plan_asked import ask_of
    from sapwood.cli.plan_trace import plan_trace

    with _looking():
        ask = ask_of(of_trace, workers, command=shlex.join(["sapwood", *context.obj]))
        met = plan_trace(
            ask, tokenizer=tokenizer, html=None if html is None else Path(html), as_document=json
        )
    if check and not met:
        raise typer.Exit(1)
    return None


@contextmanager
def _looking() -> Iterator[None]:
    """For files in folders that one may not look into, whoever does. Raises UsageError."""
    try:
        yield
    except PermissionError as error:
        if error.filename is None:
            raise
        raise UsageError(f"cannot read {error.filename}: {error.strerror}") from None


def _check(reproduce: bool, of_trace: Mapping[str, Any], of_reproduce: Mapping[str, Any]) -> None:
    """Raises UsageError for flags that do not go together."""
    wrong = of_trace if reproduce else of_reproduce
    for flag, value in wrong.items():
        if value is not None:
            raise UsageError(f"{flag} goes {'without' if reproduce else 'with'} --reproduce")
    if not reproduce and of_trace["TRACE"] is None:
        raise UsageError("TRACE is missing", hint="sapwood plan TRACE, or sapwood plan --reproduce")
    if of_trace["--check"] and all(of_trace[flag] is None for flag in _GOALS):
        raise UsageError("--check needs goals", hint="--ttft-p95 5s, say")
