"""Requests one after another through the real caches of several replicas, behind the real router: where prefixes lie.

No time passes in a replica, so nobody waits, and what a router knows of load is nothing. Caches hold blocks of the
trace, or pages where these are larger, and a router that looks at prompts sees of each block, however long, no more
than one of its own; capacities and costs are to the same scale, so it chooses as it would with all tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sapwood.cache import Namespace, PrefixCache
from sapwood.config import CacheConfig
from sapwood.routing import BLOCK_TOKENS, Candidate, Router, Ticket, router_for
from sapwood.sim.capacity import fits, useful
from sapwood.sim.contents import Contents
from sapwood.sim.cost import CostModel
from sapwood.sim.design import Design
from sapwood.sim.pages import in_pages
from sapwood.sim.rates import TOKEN
from sapwood.sim.replay import in_units, pass_through
from sapwood.sim.replies import with_replies
from sapwood.sim.trace import Trace


@dataclass(frozen=True, slots=True, eq=False)
class FleetReplay:
    """What became of each request.

    Attributes:
        reused: int64 [n], prompt tokens found where it was sent, in whole pages; never the last one.
        replica: int64 [n], which it was.
        refused: bool [n], those longer than a replica's pool: they find nothing and leave nothing.
    """

    reused: NDArray[np.int64]
    replica: NDArray[np.int64]
    refused: NDArray[np.bool_]

    def hit_rate(self, trace: Trace) -> float:
        """Reused prompt tokens per prompt token of all requests, refused ones too."""
        asked = int(trace.prompt_tokens.sum())
        return int(self.reused.sum()) / asked if asked else 0.0


def fleet_replay(trace: Trace, design: Design, cache: CacheConfig, cost: CostModel) -> FleetReplay:
    """In order of arrival, each over before the next comes.

    `cache` is what the design leaves open, `cost` what its router weighs. Raises UsageError for a trace that cannot be
    told apart in token ids.
    """
    return _Fleet(trace, design, cache, cost).run()


class _Fleet:
    def __init__(self, trace: Trace, design: Design, cache: CacheConfig, cost: CostModel) -> None:
        size, unit = design.page_size, trace.unit_tokens
        paged = in_pages(trace, size) if size > unit and size % unit == 0 else trace
        stored = with_replies(paged)
        pages = design.capacity_tokens // paged.unit_tokens
        config = replace(cache, prefix_index=design.prefix_index, eviction_policy=design.eviction_policy)
        self._useful, self._config = useful(stored, pages), in_units(config, paged.unit_tokens)
        self._replicas, self._page_tokens, self._unit = design.replicas, size, paged.unit_tokens
        self._reuses = design.prefix_index != "none"
        self._door = _Door(trace, design, cost) if design.replicas > 1 else None
        self._names, self._offsets = stored.names, stored.offsets.tolist()
        self._spaces = [Namespace(name) for name in stored.scope_names]
        self._scopes, self._arrivals = stored.scopes.tolist(), stored.arrivals.tolist()
        self._most = TOKEN.reused_tokens(paged, np.diff(paged.offsets)).tolist()
        """Of each request, prompt tokens that may be reused where all of its names are there."""
        self._refused = ~fits(stored, pages) | (pages < 1)

    def run(self) -> FleetReplay:
        reused, replicas = np.zeros((2, len(self._refused)), np.int64)
        found = FleetReplay(reused, replicas, self._refused)
        if not self._reuses or self._refused.all():
            return found
        caches = [PrefixCache(self._useful, self._config) for _ in range(self._replicas)]
        for index, refused in enumerate(self._refused.tolist()):
            if self._door is not None:
                replicas[index] = self._door.choose(index, self._arrivals[index])
            if not refused:
                reused[index] = self._reused(index, caches[replicas[index]])
            if self._door is not None:
                told = None if refused else int(reused[index])
                self._door.tell(told, int(replicas[index]), self._arrivals[index])
        return found

    def _reused(self, index: int, cache: PrefixCache) -> int:
        """Prompt tokens of a request that are there; it leaves all of its own."""
        blocks = self._names[self._offsets[index] : self._offsets[index + 1]]
        found = pass_through(cache, self._spaces[self._scopes[index]], blocks, self._arrivals[index])
        most: int = self._most[index]
        return min(found * self._unit, most) // self._page_tokens * self._page_tokens


class _Door:
    """The router, and what it is told of each request: for each name no more tokens than it has in a block."""

    def __init__(self, trace: Trace, design: Design, cost: CostModel) -> None:
        self._scale = max(1.0, trace.unit_tokens / BLOCK_TOKENS)
        self._sessions = trace.sessions.tolist()
        held = max(1, int(design.capacity_tokens / self._scale))
        self._contents = Contents(_to_scale(trace, self._scale), held + 1)
        page = max(1, round(design.page_size / self._scale))
        self._candidates = [
            Candidate(replica, 0, 0, 0.0, page_tokens=page) for replica in range(design.replicas)
        ]
        self._cost = cost
        self._router: Router = router_for(
            design.routing,
            capacity_tokens=held,
            prefill_seconds=self._prefill_seconds,
        )
        self._ticket: Ticket | None = None
        self._tokens = np.empty(0, np.int32)

    def choose(self, index: int, now: float) -> int:
        visit = self._contents.visit(index)
        self._tokens = visit.tokens
        self._ticket = Ticket(visit.namespace, visit.prompt, str(self._sessions[index]), visit.output_tokens)
        return self._router.choose(self._ticket, self._candidates, now)

    def tell(self, reused: int | None, replica: int, now: float) -> None:
        """What became of the request last chosen for; None if it was refused."""
        ticket = self._ticket
        assert ticket is not None
        if reused is None:
            self._router.failed(ticket, replica, now)
        else:
            self._router.finished(ticket, replica, self._tokens, now, int(reused / self._scale))

    def _prefill_seconds(self, tokens: int, cached: int) -> float:
        return self._cost.prefill_seconds(round(tokens * self._scale), round(cached * self._scale))


def _to_scale(trace: Trace, scale: float) -> Trace:
    """As many names, and for each no more tokens than a router has in a block."""
    if scale == 1:
        return trace
    prompt, known = (
        np.ceil(each / scale).astype(np.int64) for each in (trace.prompt_tokens, trace.known_tokens)
    )
    whole = np.ceil((trace.prompt_tokens + trace.output_tokens) / scale).astype(np.int64)
    return replace(
        trace,
        unit_tokens=BLOCK_TOKENS,
        prompt_tokens=prompt,
        output_tokens=whole - prompt,
        known_tokens=known,
    )
