"""The slow twin of the prefix cache: a dictionary of every prefix that is or was cached, no tree, no runs, no heap.

It says what the real cache must hold, page for page, including which pages an eviction takes. Everything is found
by looking through everything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sapwood.cache import Namespace
from sapwood.config import EvictionName

Prefix = tuple[int, Namespace, tuple[int, ...]]
"""Generation (flushes so far), namespace, and the tokens from the start up to the end of a page."""


@dataclass(eq=False)
class TwinLease:
    namespace: Namespace
    generation: int
    tokens: tuple[int, ...]
    """The committed part of the sequence."""
    covered_pages: int
    began: int
    live: bool = True


@dataclass(eq=False)
class TwinPage:
    """One page and its past; an evicted page keeps its past."""

    created: int
    used: int
    hits: int = 1
    here: bool = True
    evicted_at: float = 0.0
    priority: int = 0
    until: float = math.inf


class Twin:
    def __init__(
        self,
        capacity: int,
        page_size: int,
        policy: EvictionName = "lru",
        *,
        remembers: bool = True,
        quotas: Mapping[str, int] | None = None,
    ) -> None:
        self.capacity = capacity
        self.page_size = page_size
        self.policy = policy
        self.remembers = remembers
        self.quotas = quotas or {}
        """Pages that each tenant may keep."""
        self.known: dict[Prefix, TwinPage] = {}
        self.leases: list[TwinLease] = []
        self.in_use: dict[str | None, None] = {}
        """Tenants that have a lease, in the order in which they came to have one."""
        self.generation = 0
        self.evicted = 0
        self.count = 0
        self.clock = 0.0

    @property
    def here(self) -> list[Prefix]:
        return [prefix for prefix, page in self.known.items() if page.here]

    def match(self, namespace: Namespace, tokens: tuple[int, ...]) -> int:
        return len(self._path(namespace, tokens)) * self.page_size

    def remembered(self, namespace: Namespace, tokens: tuple[int, ...]) -> int:
        """Length of the longest prefix that is or was cached since the last flush."""
        prefixes = self._pages(self.generation, namespace, tokens)
        known = [prefix in self.known for prefix in prefixes]
        return (known.index(False) if False in known else len(known)) * self.page_size

    def branches(self, namespace: Namespace, tokens: tuple[int, ...]) -> bool:
        head = tokens[: self.remembered(namespace, tokens)]
        return len(head) > 0 and any(
            (generation, where, other[: len(head)]) == (self.generation, namespace, head)
            and len(other) > len(head)
            for generation, where, other in self.known
        )

    def evicted_at(self, namespace: Namespace, tokens: tuple[int, ...]) -> float | None:
        """When the first page after the cached ones was evicted."""
        end = self.match(namespace, tokens) + self.page_size
        page = self.known.get((self.generation, namespace, tokens[:end])) if end <= len(tokens) else None
        return None if page is None else page.evicted_at

    def goes_on(self, namespace: Namespace, tokens: tuple[int, ...]) -> bool:
        """Whether these begin something longer that is or was cached since the last flush."""
        return any(
            (generation, where, other[: len(tokens)]) == (self.generation, namespace, tokens)
            and len(other) > len(tokens)
            for generation, where, other in self.known
        )

    def lease(self, namespace: Namespace, tokens: tuple[int, ...], limit: int | None) -> TwinLease:
        path = self._path(namespace, tokens[:limit])
        held = tokens[: len(path) * self.page_size]
        lease = TwinLease(namespace, self.generation, held, len(path), self.count + 1)
        self.in_use.setdefault(namespace.tenant)
        self.leases.append(lease)
        self._mark_used(lease)
        for prefix in path:
            self.known[prefix].hits += 1
        return lease

    def can_grow(self, lease: TwinLease, length: int) -> bool:
        return self.missing(lease, length) <= len(self.here) - len(self.pinned)

    def missing(self, lease: TwinLease, length: int) -> int:
        """Pages to evict."""
        wanted = -(-length // self.page_size) - lease.covered_pages
        return max(0, wanted - self.free) if wanted > 0 else 0

    def grow(self, lease: TwinLease, length: int) -> None:
        for tenant, count in self.due(lease, length):
            for _ in range(count):
                self.lose([self._next(tenant)])
        for _ in range(self.missing(lease, length)):
            self.lose([self._next()])
        self.cover(lease, length)

    def due(self, lease: TwinLease, length: int) -> list[tuple[str | None, int]]:
        """Pages that tenants over their quotas lose before anyone else does, whoever grows before the others."""
        missing, wanted = self.missing(lease, length), -(-length // self.page_size) - lease.covered_pages
        grower: str | None = lease.namespace.tenant
        due = []
        for tenant in dict.fromkeys([grower, *self.in_use]):
            surplus = self.surplus(tenant, wanted if tenant == grower else 0)
            due.append((tenant, min(missing, surplus)))
            missing -= due[-1][1]
        return due

    def surplus(self, tenant: str | None, more: int = 0) -> int:
        """Pages that it has to give up, if with so many more it is to keep its quota; what it reads it keeps."""
        if tenant is None or tenant not in self.quotas:
            return 0
        cached, leased, private = self.held(tenant)
        return max(0, min(cached + private + more - self.quotas[tenant], cached - leased))

    def held(self, tenant: str) -> tuple[int, int, int]:
        """Pages of a tenant: cached, of these pinned, and private ones."""
        cached = sum(prefix[1].tenant == tenant for prefix in self.here)
        leased = sum(prefix[1].tenant == tenant for prefix in self.pinned)
        own = [lease for lease in self.leases if lease.namespace.tenant == tenant]
        private = sum(lease.covered_pages - len(lease.tokens) // self.page_size for lease in own)
        return cached, leased, private

    def cover(self, lease: TwinLease, length: int) -> None:
        lease.covered_pages = max(lease.covered_pages, -(-length // self.page_size))

    def shrink(self, lease: TwinLease, length: int) -> None:
        committed, wanted = len(lease.tokens) // self.page_size, -(-length // self.page_size)
        lease.covered_pages = min(lease.covered_pages, max(committed, wanted))

    def lose(self, prefixes: Iterable[Prefix]) -> None:
        for prefix in prefixes:
            self.known[prefix].here = False
            self.known[prefix].evicted_at = self.clock
            self.evicted += 1

    def commit(self, lease: TwinLease, tokens: tuple[int, ...]) -> None:
        full = tokens[: len(tokens) // self.page_size * self.page_size]
        if not self.remembers or lease.generation != self.generation or len(full) <= len(lease.tokens):
            return
        done = len(lease.tokens) // self.page_size
        for prefix in self._pages(lease.generation, lease.namespace, full)[done:]:
            page = self.known.get(prefix)
            if page is None:
                self.known[prefix] = TwinPage(lease.began, self.count)
                continue
            page.hits += 1
            if not page.here:
                page.here, page.created = True, lease.began
        lease.tokens = full

    def retain(self, lease: TwinLease, priority: int, seconds: float | None, start: int, end: int) -> None:
        until = math.inf if seconds is None else self.clock + seconds
        first, last = -(-start // self.page_size), min(end, len(lease.tokens)) // self.page_size
        for prefix in self._pages(lease.generation, lease.namespace, lease.tokens)[first:last]:
            page = self.known[prefix]
            stands = (page.priority, page.until) if page.until > self.clock else (0, 0.0)
            page.priority, page.until = max(stands, (max(0, min(99, priority)), until))

    def release(self, lease: TwinLease) -> None:
        if not lease.live:
            return
        self._mark_used(lease)
        lease.live = False
        self.leases.remove(lease)
        tenant = lease.namespace.tenant
        if all(other.namespace.tenant != tenant for other in self.leases):
            del self.in_use[tenant]
        self._drop_unreachable()

    def trim(self, tenant: str | None) -> None:
        """What a release makes a tenant give up."""
        for _ in range(self.surplus(tenant)):
            self.lose([self._next(tenant)])

    def flush(self) -> tuple[int, int]:
        before = len(self.here)
        self.generation += 1
        self._drop_unreachable()
        return (before - len(self.here)) * self.page_size, len(self.here) * self.page_size

    @property
    def pinned(self) -> set[Prefix]:
        return {
            page
            for lease in self.leases
            for page in self._pages(lease.generation, lease.namespace, lease.tokens)
        }

    @property
    def private(self) -> int:
        return sum(lease.covered_pages - len(lease.tokens) // self.page_size for lease in self.leases)

    @property
    def free(self) -> int:
        return self.capacity - len(self.here) - self.private

    @property
    def room(self) -> int:
        return (self.free + len(self.here) - len(self.pinned)) * self.page_size

    def findable(self) -> set[tuple[Namespace, tuple[int, ...]]]:
        return {(where, tokens) for generation, where, tokens in self.here if generation == self.generation}

    def _path(self, namespace: Namespace, tokens: tuple[int, ...]) -> list[Prefix]:
        path = []
        for prefix in self._pages(self.generation, namespace, tokens):
            if prefix not in self.known or not self.known[prefix].here:
                break
            path.append(prefix)
        return path

    def _pages(self, generation: int, namespace: Namespace, tokens: tuple[int, ...]) -> list[Prefix]:
        ends = range(self.page_size, len(tokens) + 1, self.page_size)
        return [(generation, namespace, tokens[:end]) for end in ends]

    def _mark_used(self, lease: TwinLease) -> None:
        self.count += 1
        for prefix in self._pages(lease.generation, lease.namespace, lease.tokens):
            self.known[prefix].used = self.count

    def _next(self, tenant: str | None = None) -> Prefix:
        """Of the pages that nobody reads and no page follows, the one that the policy lets go first.

        Of a tenant's, if one is named.
        """
        here, pinned = self.here, self.pinned
        parents = {(generation, where, tokens[: -self.page_size]) for generation, where, tokens in here}
        leaves = [prefix for prefix in here if prefix not in pinned and prefix not in parents]
        if tenant is not None:
            leaves = [leaf for leaf in leaves if leaf[1].tenant == tenant]
        return min(leaves, key=lambda prefix: self._key(self.known[prefix]))

    def _key(self, page: TwinPage) -> tuple[float, ...]:
        if page.priority > 0 and page.until > self.clock:
            return (1, page.priority, page.used)
        keys: dict[str, tuple[float, ...]] = {
            "lru": (page.used,),
            "mru": (-page.used,),
            "lfu": (page.hits, page.used),
            "fifo": (page.created,),
            "filo": (-page.created,),
            "slru": (page.hits > 1, page.used),
            "priority": (page.used,),
        }
        return (0, *keys[self.policy])

    def _drop_unreachable(self) -> None:
        pinned = self.pinned
        for prefix in list(self.known):
            if prefix[0] != self.generation and prefix not in pinned:
                del self.known[prefix]
