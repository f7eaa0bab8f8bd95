"""Routers on the virtual clock, where requests wait and run side by side: `python -m bench.routing.simulated`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sapwood.config import CacheConfig, SchedulerConfig
from sapwood.routing import ROUTER_NAMES, Router, RouterName, router_for
from sapwood.sim import FlopCost, Trace, hardware_named, shape_named
from sapwood.sim.chat import ChatWorkload, synthetic_chat
from sapwood.sim.setup import Setup
from sapwood.sim.simulate import simulate

from .hit_rates import REPLICAS


@dataclass(frozen=True, slots=True)
class _Making:
    """Makes a router for a run."""

    name: RouterName
    capacity_tokens: int
    cost: FlopCost

    def __call__(self) -> Router:
        return router_for(
            self.name, capacity_tokens=self.capacity_tokens, prefill_seconds=self.cost.prefill_seconds
        )


def show(trace: Trace, name: RouterName, replicas: int, capacity_tokens: int) -> None:
    cost = FlopCost(shape_named("llama-3-8b"), hardware_named("h100"))
    making = _Making(name, capacity_tokens, cost)
    setup = Setup(
        capacity_tokens, CacheConfig(), SchedulerConfig(speculate="off"), replicas=replicas, router=making
    )
    run = simulate(trace, setup, cost)
    busiest = np.bincount(run.replica, minlength=replicas).max() * replicas / len(trace)
    late = np.percentile(run.ttft, 95) * 1e3
    print(
        f"{name:13} R = {replicas}: hit rate {run.hit_rate:6.1%}, TTFT mean {run.ttft.mean() * 1e3:7.1f} ms, "
        f"p95 {late:7.1f} ms, busiest replica {busiest:.2f} of the mean in requests, "
        f"{run.busy_seconds.max() / run.busy_seconds.mean():.2f} in seconds",
        flush=True,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="A synthetic chat over replicas, on the virtual clock.")
    parser.add_argument("--capacity", type=int, default=100_000, help="tokens in each replica's cache")
    parser.add_argument("--conversations", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=3600.0, help="over which they begin")
    parser.add_argument("--replicas", type=int, nargs="*", default=REPLICAS)
    parser.add_argument("--routers", choices=ROUTER_NAMES, nargs="*", default=ROUTER_NAMES)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    workload = ChatWorkload(conversations=options.conversations, seconds=options.seconds)
    trace = synthetic_chat(workload, options.seed)
    print(f"{trace.name}: {len(trace):,} requests, {options.capacity:,} tokens in each replica")
    for replicas in options.replicas:
        for name in options.routers:
            show(trace, name, replicas, options.capacity)


if __name__ == "__main__":
    main()
