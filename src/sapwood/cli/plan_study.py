"""From a trace and what was asked to a report: the curves of hit rates, which are cheap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sapwood.cli.plan_ask import Ask
from sapwood.cli.plan_report import Ceiling, Curves, Knee, Line, Machine, Point, Report, Traffic
from sapwood.config import CacheConfig, EvictionName
from sapwood.errors import UsageError
from sapwood.sim import (
    CostModel,
    CurvePoint,
    Definition,
    Demand,
    FlopCost,
    Progress,
    Rent,
    RooflineCost,
    Segments,
    Trace,
    beyond_context,
    capacities_up_to,
    cost_per_million,
    curves,
    in_pages,
    knees,
    steps,
    unbounded_rates,
    with_replies,
    with_traffic,
    without_names,
)

SHOWN: tuple[EvictionName, ...] = ("default", "lru", "slru", "lfu", "fifo")
"""Policies whose curves are drawn where nobody asks for others."""
COUNTED = (
    Definition(),
    Definition(replies=False),
    Definition(tail=False),
    Definition("block"),
    Definition("request"),
)
"""Definitions of a hit rate by which published ones differ, each shown; the first is that of all other figures."""
SIZES = 10
"""Capacities where nobody asks for others, each twice the one before."""


@dataclass(frozen=True, slots=True)
class Study:
    """One trace, cut as asked, and one kind of replica; what no model can read finds and leaves nothing.

    The segments are of all that is stored, replies too.
    """

    ask: Ask
    trace: Trace
    segments: Segments
    demand: Demand

    @classmethod
    def of(cls, ask: Ask, whole: Trace) -> Study:
        """Raises UsageError if nothing of the trace is left, or the model can read none of it."""
        trace = readable(ask, with_traffic(cut(whole, ask.limit, ask.duration), ask.traffic))
        return cls(ask, trace, Segments.of(with_replies(trace)), Demand.of(trace, ask.model.context))

    @property
    def cost(self) -> CostModel:
        return self.ask.cost

    @property
    def cache(self) -> CacheConfig:
        """What no design chooses."""
        model = self.ask.model
        return CacheConfig(
            attention_tokens=max(1, model.active // (2 * model.layers * model.heads * model.head_dim))
        )

    @property
    def stored_tokens(self) -> int:
        """Of all different blocks: more memory is of no use."""
        blocks = int(self.segments.lengths.sum() - self.segments.length.sum())
        return max(1, blocks) * self.trace.unit_tokens

    @property
    def longest_tokens(self) -> int:
        """Of the longest request, in whole blocks."""
        return int(self.segments.lengths.max(initial=1)) * self.trace.unit_tokens

    @property
    def capacities(self) -> list[int]:
        """Total tokens, ascending, whole blocks: those asked for, or some up to all that can be stored."""
        unit, most = max(self.trace.unit_tokens, self.ask.page_size or 1), self.machine().held_tokens
        given = [each.tokens(self.ask.kv_bytes) for each in self.ask.capacities]
        if not given:
            sizes = capacities_up_to(self.stored_tokens, unit, SIZES)
            given = [size for size in sizes if self.demand.refused(size) < self.demand.requests] or [
                sizes[-1]
            ]
            given += [most] if most < self.stored_tokens else []
        return sorted({max(each // unit, 1) * unit for each in given})

    def report(self, progress: Progress) -> Report:
        """Of the curves alone."""
        return Report(
            self.ask.command,
            self._traffic(),
            self.machine(),
            self._curves(progress),
            definitions=self._words(),
        )

    def _curves(self, progress: Progress) -> Curves:
        policies = self.ask.policies or SHOWN
        names = [*policies, "optimum"]
        points = curves(
            self._in_pages,
            self.capacities,
            names,
            config=self.cache,
            cost=None if self._rent is None else self.cost,
            workers=self.ask.workers,
            progress=progress,
        )
        by_policy = {name: [point for point in points if point.policy == name] for name in names}
        first = by_policy[policies[0]]
        gains = [100 * step.rate_per_gb for step in steps(first, round(self.ask.kv_bytes))]
        bends = knees([point.capacity_tokens for point in first], [point.hit_rate for point in first])
        return Curves(
            tuple(self._line(by_policy[name]) for name in policies),
            self._line(by_policy["optimum"]),
            tuple(_knee(first, at, gains) for at in bends),
            tuple(gains),
        )

    @property
    def _in_pages(self) -> Trace:
        """What can be shared with pages of the size asked for."""
        size = self.ask.page_size or 1
        return in_pages(self.trace, size) if size > self.trace.unit_tokens else self.trace

    @property
    def _rent(self) -> Rent | None:
        """None without a price, or for a trace that takes no time."""
        price, seconds = self.ask.hardware.price_per_hour, self.trace.seconds
        if price is None or not seconds:
            return None
        return Rent(price, self.ask.most_tokens, seconds, self.ask.replicas or 1)

    def _line(self, points: Sequence[CurvePoint]) -> Line:
        return Line(points[0].policy, tuple(self._point(point) for point in points))

    def _point(self, point: CurvePoint) -> Point:
        rent, size = self._rent, self.ask.page_size or 1
        pool = point.capacity_tokens // (self.ask.replicas or 1) // size * size
        cost = None if rent is None else cost_per_million(point, rent)
        return Point(point.capacity_tokens, point.hit_rate, cost=cost, refused=self.demand.refused(pool))

    def _traffic(self) -> Traffic:
        trace = self.trace
        return Traffic(
            trace.name,
            len(trace),
            self.trace.seconds,
            int(trace.prompt_tokens.sum()),
            int(trace.output_tokens.sum()),
            trace.unit_tokens,
            len(np.unique(trace.sessions)),
            self.stored_tokens,
            tuple(
                Ceiling(rate.definition.name, rate.definition.text, rate.value)
                for rate in unbounded_rates(trace, definitions_for(trace.unit_tokens))
            ),
            (*trace.notes, *self._warnings(), *self._refusals()),
            trace.assumed,
        )

    def _warnings(self) -> Iterator[str]:
        ask = self.ask
        yield from ask.served
        yield from (f"{ask.model.name}: {note}" for note in ask.model.notes)
        yield from _of_hardware(ask)
        if ask.traffic != 1:
            yield (
                f"all of this is for {ask.traffic:g} times the users of the trace (--traffic): copies of sessions that "
                "share nothing with the others, or some of them"
            )
        if ask.assumed:
            yield (
                f"times were measured, but memory is that of {ask.model.name} on {ask.hardware.name}, by default; give "
                f"{' and '.join(ask.assumed)} as they were where it was measured"
            )

    def _refusals(self) -> Iterator[str]:
        """Of requests that no replica of this kind serves."""
        ask, demand = self.ask, self.demand
        refused, all_of = demand.refused(ask.most_tokens), f"of {demand.requests:,} requests are longer than"
        if demand.beyond_context:
            yield (
                f"{demand.beyond_context:,} {all_of} the context of {ask.model.name}, {ask.model.context:,} tokens "
                "with their replies: they are refused, and reuse nothing"
            )
        if refused > demand.beyond_context:
            yield (
                f"{refused - demand.beyond_context:,} {all_of} what a replica holds, {ask.most_tokens:,} tokens with "
                "their replies: they are refused"
            )

    def machine(self) -> Machine:
        ask, hardware = self.ask, self.ask.hardware
        return Machine(
            ask.model.name,
            hardware.name,
            self.cost.name,
            ask.kv_bytes,
            ask.most_tokens,
            hardware.price_per_hour,
            ask.replicas or 1,
            hardware.devices,
        )

    def _words(self) -> Mapping[str, str]:
        told = {
            "hit rate": f"{COUNTED[0].text}; {len(self.trace):,} requests replayed one after "
            "another from an empty cache, in which replies without a name take room as well; memory is that of all "
            "replicas together, as one pool",
            "optimum": "the same under clairvoyant eviction, which no policy can exceed; who is running needs no room, "
            "and nothing is refused",
            "knee": "a size from which on more memory brings clearly less (Kneedle, on the sizes shown)",
        }
        if self._rent is not None:
            told["price per 1M"] = (
                "the price of a million prompt tokens: of as many replicas as the memory takes, or as reading what is "
                "not reused (of refused requests too) keeps busy if that is more, for as long as the trace takes; "
                "decoding may need more"
            )
        if self.demand.refused(self.capacities[0] // (self.ask.replicas or 1)):
            told["refused"] = (
                "requests of the whole trace that are longer, with their replies, than the context or than what each "
                "replica then holds"
            )
        return told


def _of_hardware(ask: Ask) -> Iterator[str]:
    hardware, devices = ask.hardware, ask.hardware.devices
    kept = hardware.memory_bytes - hardware.usable_bytes
    if kept:
        yield (
            f"{kept / 1e9:.3g} of the {hardware.memory_bytes / 1e9:.3g} GB of a replica are kept back for activations "
            f"and the runtime (--memory-utilization {hardware.memory_utilization:g})"
        )
    if devices == 1:
        return
    times = "times are those that were measured, on as many devices or not"
    if isinstance(ask.cost, FlopCost | RooflineCost):
        times = "no network between them is modelled, so times are at their best"
    yield f"a replica spans {devices} devices: memory, peak and bandwidth are {devices} times those of one; {times}"
    if devices > ask.model.kv_heads:
        yield (
            f"{ask.model.name} has {ask.model.kv_heads} KV heads: with tensor parallelism over more devices these keep "
            "copies of the KV, so less fits than is told"
        )


def definitions_for(unit_tokens: int) -> tuple[Definition, ...]:
    """Those that differ for blocks of such a size: one token is never unfinished."""
    if unit_tokens > 1:
        return COUNTED
    return tuple(each for each in COUNTED if each.tail and each.weighting != "block")


def cut(trace: Trace, limit: int | None, seconds: float | None) -> Trace:
    """Its beginning: so many requests, and so many seconds. Raises UsageError if nothing is left."""
    kept = np.ones(len(trace), np.bool_)
    if limit is not None:
        kept[limit:] = False
    if seconds is not None and len(trace):
        kept &= trace.arrivals <= trace.arrivals[0] + seconds
    if not kept.any():
        raise UsageError(f"{trace.name} has no requests", hint="is it the right file?")
    return trace if kept.all() else trace.where(kept)


def _knee(points: Sequence[CurvePoint], at: int, gains: Sequence[float]) -> Knee:
    return Knee(points[at].capacity_tokens, points[at].hit_rate, gains[at - 1], gains[at])


def readable(ask: Ask, trace: Trace) -> Trace:
    """What is longer than the model's context keeps its place, but no names. Raises UsageError if all of it is."""
    unread = beyond_context(trace, ask.model.context)
    if unread.all():
        raise UsageError(
            f"all requests of {trace.name} are longer than the context of {ask.model.name}, "
            f"{ask.model.context:,} tokens",
            hint="give the --model-shape of a model that reads more",
        )
    return without_names(trace, unread) if unread.any() else trace
