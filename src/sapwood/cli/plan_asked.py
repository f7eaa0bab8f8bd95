"""From the flags of `sapwood plan TRACE` to what is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sapwood.cli.plan_ask import HARDWARE, MODEL, Ask, amounts, policies_of
from sapwood.cli.plan_capture import Served, served_by
from sapwood.cli.plan_cost import assumed, cost_named
from sapwood.cli.plan_hardware import replica_of
from sapwood.cli.plan_model import model_of
from sapwood.sim import Hardware

_AS_THEY_ARE = (
    "replicas",
    "page_size",
    "schedule_policy",
    "routing",
    "ttft_p95",
    "ttft_p50",
    "ttft_p99",
    "tpot_p95",
    "hit_rate",
    "budget",
    "traffic",
    "limit",
    "duration",
    "timed",
    "full",
    "in_a_row",
    "output_tokens",
    "seed",
)
"""Fields of `Ask` of the name, and with the value, of a flag that was given."""


def ask_of(given: Mapping[str, Any], workers: int | None, command: str) -> Ask:
    """`given` are the values of all flags by their names, and TRACE; None for those that nobody gave.

    Raises UsageError.
    """
    path = Path(given["TRACE"])
    served, cost, shape = served_by(path), given["--cost"], given["--model-shape"]
    model = model_of(shape or served.model or MODEL, given["--weights"], given["--kv-dtype"])
    replica = _replica(given)
    plain = {name: given["--" + name.replace("_", "-")] for name in _AS_THEY_ARE}
    said = {**plain, **_of_sizes(given, served)}
    measured = {
        "--model-shape": shape or served.model,
        "--hardware": given["--hardware"] or given["--memory"],
    }
    ask = Ask(
        path,
        model,
        replica,
        cost_named(None, model, replica),
        what_ifs=not given["--no-what-ifs"],
        workers=workers,
        served=tuple(served.notes(given)),
        assumed=assumed(cost, measured),
        command=command,
        **{name: value for name, value in said.items() if value is not None},
    )
    ask.check()  # Before times are taken from a capture, which may take long.
    return replace(ask, cost=cost_named(cost, model, replica))


def _of_sizes(given: Mapping[str, Any], served: Served) -> Mapping[str, Any]:
    """What is read once more, or was told by a capture."""
    capacity, policy = given["--capacity"], given["--policy"]
    return {
        "capacities": None if capacity is None else amounts("--capacity")(capacity),
        "policies": None if policy is None else policies_of("--policy")(policy),
        "chunk_tokens": given["--chunk-tokens"] or served.chunk_tokens,
        "max_running": given["--max-running"] or served.max_running,
    }


def _replica(given: Mapping[str, Any]) -> Hardware:
    peak = given["--peak"]
    said = {
        "peak_flops": None if peak is None else peak * 1e12,
        "bandwidth": given["--bandwidth"],
        "memory_bytes": given["--memory"],
        "mfu": given["--mfu"],
        "mbu": given["--mbu"],
        "memory_utilization": given["--memory-utilization"],
        "price_per_hour": given["--price"],
    }
    return replica_of(given["--hardware"] or HARDWARE, given["--devices"] or 1, said)
