"""A ledger by markers as a list that is searched from end to end: slow, and with no hash in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sapwood.contract import LEVELS, Billing, Block, Markers, Written

Name = tuple[str, tuple[str, ...], tuple[int, ...]]


@dataclass
class Promise:
    """Times in seconds."""

    name: Name
    ttl: float
    expires: float


@dataclass(frozen=True)
class TwinPlan:
    names: list[Name]
    blocks: Sequence[Block]
    found: list[tuple[int, float]]
    """Ends of the promises that were live, and their ttl."""
    length: int
    started: float


class Twin:
    def __init__(self, profile: Markers) -> None:
        self.profile = profile
        self.promises: list[Promise] = []

    def plan(
        self,
        namespace: str,
        tokens: Sequence[int],
        blocks: Sequence[Block],
        settings: Mapping[str, str],
        now: float,
    ) -> TwinPlan:
        names: list[Name] = []
        deepest = 0
        for block in blocks:
            deepest = max(deepest, LEVELS.index(block.level))
            told = tuple(settings.get(level, "") for level in LEVELS[: deepest + 1])
            names.append((namespace, told, tuple(tokens[: block.end])))
        found = []
        for i, name in enumerate(names):
            near = any(b.ttl is not None for b in blocks[i : i + self.profile.lookback])
            for promise in self.promises:
                if near and promise.name == name and now < promise.expires:
                    found.append((blocks[i].end, promise.ttl))
        return TwinPlan(names, blocks, found, len(tokens), now)

    def settle(self, plan: TwinPlan, reused: int, now: float) -> Billing:
        there = [(end, ttl) for end, ttl in plan.found if end <= reused]
        read = max((end for end, _ in there), default=0)
        marked = [
            (block, name)
            for block, name in zip(plan.blocks, plan.names, strict=True)
            if block.ttl is not None and block.end >= self.profile.minimum
        ]
        for end, ttl in there:
            name = next(n for b, n in zip(plan.blocks, plan.names, strict=True) if b.end == end)
            if end == read or any(block.end == end for block, _ in marked):
                self._live_until(name, ttl, plan.started, now)
        written: dict[float, int] = {}
        at = read
        for block, name in marked:
            assert block.ttl is not None
            if block.end > at:
                written[block.ttl] = written.get(block.ttl, 0) + block.end - at
                at = block.end
            if block.end not in [end for end, _ in there]:
                self._live_until(name, block.ttl, plan.started, now)
        parts = tuple(Written(ttl, count) for ttl, count in sorted(written.items(), reverse=True))
        return Billing(read, parts, plan.length - at)

    def _live_until(self, name: Name, ttl: float, started: float, now: float) -> None:
        """A live promise keeps the longer of its lives; of one that is gone nothing is left."""
        for promise in self.promises:
            if promise.name == name and now < promise.expires:
                promise.expires = max(promise.expires, started + ttl)
                promise.ttl = max(promise.ttl, ttl)
                return
        self.promises = [each for each in self.promises if each.name != name]
        self.promises.append(Promise(name, ttl, started + ttl))
