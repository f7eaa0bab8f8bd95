"""Which prefixes a provider's rules say are cached, and what a request is billed for.

    plan (the request starts) ──▶ it runs: so many tokens were reused ──▶ settle (it begins to answer)

Between the two nothing is promised: of requests that start together, all miss. A promise is worth no more than
what is there: where fewer tokens were reused than promised, the rest counts as written anew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sapwood.contract.billing import Billing, Written
from sapwood.contract.block import Block
from sapwood.contract.breakpoints import Boundary, Write, boundaries_of
from sapwood.contract.entries import Entries, Entry, Limits
from sapwood.contract.prefix_keys import PrefixKey, Tokens, prefix_keys
from sapwood.contract.profiles import Profile


@dataclass(frozen=True, slots=True)
class Hit:
    """An entry that was live when the request started."""

    boundary: Boundary
    entry: Entry


@dataclass(frozen=True, slots=True)
class Plan:
    """What a request would read and write, by the rules, before it runs.

    Attributes:
        length: tokens of the prompt.
        started: when the request did; times-to-live count from here.
        hits, writes: in prompt order, none below the minimum.
        keys: of their boundaries.
        charged: see `Boundaries`.
    """

    namespace: str
    length: int
    started: float
    hits: tuple[Hit, ...]
    writes: tuple[Write, ...]
    keys: Mapping[Boundary, PrefixKey]
    charged: bool


class Ledger:
    """Entries by (namespace, settings up to the level, tokens up to a boundary). For one thread; bounded.

    With pages of several tokens the last few before a boundary are computed again; a read is then told without
    them, where it may be of any length.
    """

    def __init__(self, profile: Profile, limits: Limits | None = None, page_size: int = 1) -> None:
        self.profile = profile
        self._entries = Entries(limits or Limits())
        self._page_size = page_size

    def __len__(self) -> int:
        return len(self._entries)

    def plan(
        self,
        namespace: str,
        tokens: Sequence[int] | Tokens,
        blocks: Sequence[Block],
        settings: Mapping[str, str],
        now: float,
    ) -> Plan:
        """Looks up, changes nothing. Raises RequestError where the rules forbid these markers.

        `namespace` is of whom and for which model; its entries are limited, so what a client can choose (a key,
        a salt) belongs in `settings["tools"]`. `settings` are by level: see `prefix_keys`.
        """
        found = boundaries_of(self.profile, blocks, len(tokens))
        minimum = self.profile.minimum
        writes = tuple(write for write in found.writes if write.boundary.end >= minimum)
        lookups = [boundary for boundary in found.lookups if boundary.end >= minimum]
        keys = prefix_keys(tokens, sorted({*lookups, *(write.boundary for write in writes)}), settings)
        entries = ((each, self._entries.get(namespace, keys[each], now)) for each in lookups)
        hits = tuple(Hit(boundary, entry) for boundary, entry in entries if entry is not None)
        return Plan(namespace, len(tokens), now, hits, writes, keys, found.charged)

    def settle(self, plan: Plan, reused: int, now: float) -> Billing:
        """What is billed; from now on others read what was written.

        `reused` tokens were physically there: a promise is never billed as read beyond them. All entries of the
        plan's markers live on, those before the read included; that costs nothing.
        """
        hits = {hit.boundary: hit for hit in plan.hits if self._is_there(plan, hit, reused)}
        longest = max(hits, default=None)
        read = 0 if longest is None else min(longest.end, reused)
        # From the longest on, so that when room is short a prefix goes before what it starts with.
        lives = {} if longest is None else {plan.keys[longest]: self._used(plan, hits[longest], now)}
        for write in reversed(plan.writes):
            hit = hits.get(write.boundary)
            # Where writing costs nothing, whoever asks for a longer life gets it, though it was there.
            longer = hit is not None and not plan.charged and write.ttl > hit.entry.ttl
            lives[plan.keys[write.boundary]] = (
                self._new(plan, write, now) if hit is None or longer else self._used(plan, hit, now)
            )
        self._entries.put(plan.namespace, lives, now)
        written = _written(plan.writes, read) if plan.charged else ()
        return Billing(read, written, plan.length - read - sum(each.tokens for each in written))

    def _is_there(self, plan: Plan, hit: Hit, reused: int) -> bool:
        tail = hit.boundary.end % self._page_size if plan.charged else 0
        return max(hit.boundary.end - tail, self.profile.minimum) <= reused

    def _used(self, plan: Plan, hit: Hit, now: float) -> Entry:
        # What was read may have expired, and be swept away, while the request waited.
        entry = self._entries.get(plan.namespace, plan.keys[hit.boundary], now) or hit.entry
        return entry.used(plan.started)

    def _new(self, plan: Plan, write: Write, now: float) -> Entry:
        """Promised anew; if it was still promised, though not there, the longer life holds."""
        dies = plan.started + (math.inf if write.longest is None else write.longest)
        expires = min(plan.started + write.ttl, dies)
        before = self._entries.get(plan.namespace, plan.keys[write.boundary], now)
        if before is None:
            return Entry(write.ttl, expires, dies)
        return Entry(max(write.ttl, before.ttl), max(expires, before.expires), max(dies, before.dies))


def _written(writes: Sequence[Write], read: int) -> tuple[Written, ...]:
    """Tokens past the read, each with the ttl of the first marker after it."""
    tokens: dict[float, int] = {}
    at = read
    for write in writes:
        if write.boundary.end > at:
            tokens[write.ttl] = tokens.get(write.ttl, 0) + write.boundary.end - at
            at = write.boundary.end
    return tuple(Written(ttl, tokens[ttl]) for ttl in sorted(tokens, reverse=True))
