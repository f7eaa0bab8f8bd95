"""What the tests of report scenarios share: engines over each index, and what must hold when all is over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from engine.rig import SEED, VOCAB, ByteDetok, Log, Rig
from sapwood.cache import PrefixCache
from sapwood.config import CacheConfig, EvictionName, IndexName, OrderName, SchedulerConfig
from sapwood.engine import Engine, ModelFacts
from sapwood.types import Request, SamplingParams, Scope

ORDERS: tuple[OrderName, ...] = ("default", "dfs-weight", "priority")
"""Three that differ most; all of them are tried elsewhere."""


@dataclass(frozen=True)
class Kind:
    """An index with its page size, and how the tree evicts."""

    index: IndexName
    page_size: int
    eviction: EvictionName = "default"

    def __str__(self) -> str:
        eviction = "" if self.eviction == "default" else f"-{self.eviction}"
        return f"{self.index}-{self.page_size}{eviction}"

    @property
    def config(self) -> CacheConfig:
        return CacheConfig(self.page_size, self.index, self.eviction)

    def whole(self, tokens: int) -> int:
        """As many tokens as the full pages of so many hold."""
        return tokens // self.page_size * self.page_size


KINDS = (Kind("radix", 1), Kind("radix", 16), Kind("blocks", 16))
EVICTIONS: tuple[EvictionName, ...] = ("default", "lru", "lfu", "fifo", "mru", "filo", "slru", "priority")
EVICTING_KINDS = (*(Kind("radix", 1, eviction) for eviction in EVICTIONS), *KINDS[1:])
each_index = pytest.mark.parametrize("kind", KINDS, ids=str)
each_eviction = pytest.mark.parametrize("kind", EVICTING_KINDS, ids=str)


class ReportRig(Rig):
    """A rig over any kind of cache. Its own `step` proves the books, so the engine need not."""

    def __init__(
        self, kind: Kind, pool: int = 4096, *, pin_tokens: int = 0, patience: int = 32768, **others: Any
    ) -> None:
        super().__init__(pool, page_size=kind.page_size, index=kind.index, **others)
        self.kind = kind
        self.cache = PrefixCache(self.cache.capacity_pages, kind.config)
        self._others = {"chunk": 64, "max_running": 8, "policy": "fcfs", **others}
        self._pin_tokens = pin_tokens
        self._patience = patience
        self.engine = self.new_engine(self.facts)

    def new_engine(self, facts: ModelFacts) -> Engine:
        """One more engine over the same cache and pages; only one may have work."""
        chunk, running, policy = (self._others[name] for name in ("chunk", "max_running", "policy"))
        return Engine(
            self.runner,
            self.cache,
            SchedulerConfig(chunk, running, schedule_policy=policy, patience_tokens=self._patience),
            facts,
            ByteDetok,
            pin_tokens=self._pin_tokens,
            pick_seed=lambda: SEED,
        )

    def wish(self, prompt: tuple[int, ...], params: SamplingParams, scope: Scope, **others: Any) -> Log:
        """As `add`, with any field of a request."""
        request = Request(f"r{len(self.logs)}", prompt, params, scope, **others)
        self.engine.add(request, self.now)
        log = self.logs[request.id] = Log(request)
        return log

    def flush(self) -> None:
        self.engine.flush()
        self.cache.check()

    def expect_end(self, *unlike_solo: Log) -> None:
        """All but these got their solo answers; every page is free or in the tree, and a flush frees all."""
        for log in self.logs.values():
            if log not in unlike_solo:
                self.expect_solo(log)
        books = self.cache.books()
        assert (books.leased, books.private, books.free + books.tree) == (0, 0, books.capacity)
        stats = self.engine.stats()
        assert stats.reused_tokens + sum(stats.missed_tokens.values()) == stats.prompt_tokens
        self.expect_no_leaks()


def stranger(length: int, number: int) -> tuple[int, ...]:
    """Some tokens; another number, below VOCAB², gives others within the first two."""
    rest = np.random.default_rng(number).integers(0, VOCAB, length)
    return (number % VOCAB, number // VOCAB, *rest.tolist())[:length]


def other_facts(fingerprint: str) -> ModelFacts:
    """Facts of other weights."""
    return ModelFacts(fingerprint, 4096, VOCAB)
