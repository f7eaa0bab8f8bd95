"""The contract ledgers of one server: what each dialect's rules say is cached.

How a dialect uses one, where `order.ledgers.shows_contract("anthropic")`:

    plan = order.ledgers.anthropic.plan(order.namespace, tokens, blocks, settings)   # in prepare
    billing = order.ledgers.anthropic.settle(plan, event.usage.reused)      # in its render, at each `Started`

Both are for any thread, and quick. `plan` raises RequestError where the rules forbid the markers. What a client can
choose (a cache key, a salt) goes into `settings["tools"]`, never into the namespace.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from sapwood.config import ServerConfig
from sapwood.contract import (
    ANTHROPIC,
    OPENAI,
    OPENAI_BREAKPOINTS,
    Billing,
    Block,
    Diagnoses,
    Finding,
    Imprint,
    Ledger,
    Plan,
    Profile,
)
from sapwood.server.gemini_caches import CachedContents

Dialect = Literal["openai", "anthropic", "gemini"]
Clock = Callable[[], float]
"""Seconds; may jump, but only forwards."""


class SharedLedger:
    """A ledger for any thread, with a clock."""

    def __init__(self, profile: Profile, page_size: int, clock: Clock) -> None:
        self.profile = profile
        self._ledger = Ledger(profile, page_size=page_size)
        self._clock = clock
        self._lock = threading.Lock()

    def plan(
        self, namespace: str, tokens: Sequence[int], blocks: Sequence[Block], settings: Mapping[str, str]
    ) -> Plan:
        """As `Ledger.plan`, now."""
        ids = np.asarray(tokens, dtype=np.int32)  # Before the lock: of a long prompt that takes a while.
        with self._lock:
            return self._ledger.plan(namespace, ids, blocks, settings, self._clock())

    def settle(self, plan: Plan, reused: int) -> Billing:
        """As `Ledger.settle`, now."""
        with self._lock:
            return self._ledger.settle(plan, reused, self._clock())


class SharedDiagnoses:
    """`Diagnoses` for any thread."""

    def __init__(self) -> None:
        self._diagnoses = Diagnoses()
        self._lock = threading.Lock()

    def note(self, tenant: str, id: str, imprint: Imprint, reusable: int) -> None:
        with self._lock:
            self._diagnoses.note(tenant, id, imprint, reusable)

    def compare(self, tenant: str, previous: str, imprint: Imprint, read: int) -> Finding | None:
        """Raises KeyError where `previous` is not known to this tenant."""
        with self._lock:
            return self._diagnoses.compare(tenant, previous, imprint, read)


class Ledgers:
    """Attributes:
    anthropic: by markers.
    openai: automatic, in steps of 128 tokens.
    openai_breakpoints: by boundaries.
    diagnoses: of what was answered lately, in any dialect.
    gemini_objects: cached contents that have a name.
    """

    def __init__(self, config: ServerConfig, page_size: int, clock: Clock = time.monotonic) -> None:
        self._name = config.ledger
        anthropic = replace(ANTHROPIC, minimum=config.anthropic_minimum)
        self.anthropic = SharedLedger(anthropic, page_size, clock)
        self.openai = SharedLedger(OPENAI, page_size, clock)
        self.openai_breakpoints = SharedLedger(OPENAI_BREAKPOINTS, page_size, clock)
        self.diagnoses = SharedDiagnoses()
        self.gemini_objects = CachedContents(clock)

    def shows_contract(self, dialect: Dialect) -> bool:
        """Whether `usage` tells the dialect's own rules' numbers, not the physical ones."""
        return self._name == "contract" or (self._name == "auto" and dialect != "openai")

    def names(self) -> Mapping[Dialect, Literal["contract", "physical"]]:
        """The ledger that each dialect shows."""
        dialects: tuple[Dialect, ...] = ("openai", "anthropic", "gemini")
        return {each: "contract" if self.shows_contract(each) else "physical" for each in dialects}
