"""Hit rates of a chat over 1, 2, 4 and 8 replicas, by router: `python -m bench.routing.hit_rates`.

Random routing finds a conversation's history where its last turn was with a chance of 1 in R: it loses about (R-1)/R
of the history's hits, and what else it finds are system prompts, and older turns that were once there.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sapwood.cache import Namespace
from sapwood.config import CacheConfig, EvictionName
from sapwood.routing import ROUTER_NAMES, RouterName, Ticket, router_for
from sapwood.sim import FlopCost, Trace, hardware_named, shape_named
from sapwood.sim.chat import ChatWorkload, synthetic_chat

from .fleet import CacheFleet

REPLICAS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class HitRates:
    """Over one trace, token-weighted.

    Attributes:
        prompt: reused prompt tokens over all prompt tokens.
        history: of the tokens that the session's turn before left behind, system prompt excluded, the share reused.
        whole: of the later turns of sessions, the share that reused all of that.
        busiest: requests of the replica that got most, over the mean.
    """

    prompt: float
    history: float
    whole: float
    busiest: float


def play(
    trace: Trace, name: RouterName, replicas: int, capacity_tokens: int, policy: EvictionName
) -> HitRates:
    """One request after the other. The capacity is each replica's."""
    cost = FlopCost(shape_named("llama-3-8b"), hardware_named("h100"))
    router = router_for(name, capacity_tokens=capacity_tokens, prefill_seconds=cost.prefill_seconds)
    fleet = CacheFleet(router, replicas, capacity_tokens, CacheConfig(eviction_policy=policy))
    systems = _shared(trace)
    before: dict[int, int] = {}
    asked = reused = history = found = turns = whole = 0
    served: Counter[int] = Counter()
    for index, request in enumerate(trace):
        prompt, reply = request.names[: request.prompt_tokens], request.names[request.prompt_tokens :]
        ticket = Ticket(Namespace("chat"), prompt, str(request.session), request.output_tokens)
        result = fleet.ask(ticket, reply, request.arrival)
        served[result.replica] += 1
        asked, reused = asked + request.prompt_tokens, reused + result.reused
        earlier = before.get(request.session, 0) - systems[index]
        if earlier > 0:
            history += earlier
            here = min(earlier, max(0, result.reused - systems[index]))
            found, turns, whole = found + here, turns + 1, whole + (here == earlier)
        before[request.session] = request.known_tokens
    busiest = max(served.values()) * replicas / len(trace)
    return HitRates(reused / asked, found / history, whole / turns, busiest)


def _shared(trace: Trace) -> Sequence[int]:
    """Of each request, the tokens that other sessions have too: those of its system prompt."""
    sessions = np.repeat(trace.sessions, np.diff(trace.offsets))
    lowest = np.full(int(trace.names.max()) + 1, np.iinfo(np.int64).max)
    highest = np.zeros(len(lowest), np.int64)
    np.minimum.at(lowest, trace.names, sessions)
    np.maximum.at(highest, trace.names, sessions)
    shared: list[int] = np.add.reduceat(
        (lowest < highest)[trace.names].astype(np.int64), trace.offsets[:-1]
    ).tolist()
    return shared


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Hit rates of a synthetic chat by router and number of replicas."
    )
    parser.add_argument("--capacity", type=int, default=100_000, help="tokens in each replica's cache")
    parser.add_argument("--conversations", type=int, default=400)
    parser.add_argument("--policy", default="default")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    trace = synthetic_chat(ChatWorkload(conversations=options.conversations), options.seed)
    print(
        f"{trace.name}: {len(trace):,} requests, {options.capacity:,} tokens in each replica, {options.policy}"
    )
    print("per R: hit rate, of history's tokens, whole histories; requests of the busiest over the mean")
    print("router         " + "".join(f"{f'R = {count}':>30}" for count in REPLICAS))
    for name in ROUTER_NAMES:
        rates = [play(trace, name, count, options.capacity, options.policy) for count in REPLICAS]
        cells = (
            f"{rate.prompt:6.1%} {rate.history:6.1%} {rate.whole:6.1%} {rate.busiest:5.2f}" for rate in rates
        )
        print(f"{name:15}" + "".join(f"{cell:>30}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
