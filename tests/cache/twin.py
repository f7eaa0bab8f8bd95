"""The slow twin of the prefix cache: a dictionary of every cached prefix, no tree, no runs, no heap.

It says what the real cache must hold, page for page, including which pages an eviction takes. Everything is found
by looking through everything.
"""

from __future__ import annotations

from dataclasses import dataclass

from sapwood.cache import Namespace

Prefix = tuple[int, Namespace, tuple[int, ...]]
"""Generation (flushes so far), namespace, and the tokens from the start up to the end of a page."""


@dataclass(eq=False)
class TwinLease:
    namespace: Namespace
    generation: int
    tokens: tuple[int, ...]
    """The committed part of the sequence."""
    covered_pages: int
    live: bool = True


class Twin:
    def __init__(self, capacity: int, page_size: int, *, remembers: bool = True) -> None:
        self.capacity = capacity
        self.page_size = page_size
        self.remembers = remembers
        self.used: dict[Prefix, int] = {}
        self.leases: list[TwinLease] = []
        self.generation = 0
        self.evicted = 0
        self.now = 0

    def match(self, namespace: Namespace, tokens: tuple[int, ...]) -> int:
        return len(self._path(self.generation, namespace, tokens)) * self.page_size

    def lease(self, namespace: Namespace, tokens: tuple[int, ...], limit: int | None) -> TwinLease:
        path = self._path(self.generation, namespace, tokens[:limit])
        held = tokens[: len(path) * self.page_size]
        lease = TwinLease(namespace, self.generation, held, len(path))
        self.leases.append(lease)
        self._mark_used(lease)
        return lease

    def grow(self, lease: TwinLease, length: int) -> bool:
        """False, and nothing changed, if there is no room."""
        wanted = -(-length // self.page_size) - lease.covered_pages
        if wanted <= 0:
            return True
        missing = max(0, wanted - self.free)
        if missing > len(self.used) - len(self.pinned):
            return False
        for _ in range(missing):
            self._evict_one()
        lease.covered_pages += wanted
        return True

    def commit(self, lease: TwinLease, tokens: tuple[int, ...]) -> None:
        full = tokens[: len(tokens) // self.page_size * self.page_size]
        if not self.remembers or lease.generation != self.generation or len(full) <= len(lease.tokens):
            return
        lease.tokens = full
        for prefix in self._pages(lease.generation, lease.namespace, full):
            self.used.setdefault(prefix, self.now)

    def release(self, lease: TwinLease) -> None:
        if not lease.live:
            return
        self._mark_used(lease)
        lease.live = False
        self.leases.remove(lease)
        self._drop_unreachable()

    def flush(self) -> tuple[int, int]:
        before = len(self.used)
        self.generation += 1
        self._drop_unreachable()
        return (before - len(self.used)) * self.page_size, len(self.used) * self.page_size

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
        return self.capacity - len(self.used) - self.private

    @property
    def room(self) -> int:
        return (self.free + len(self.used) - len(self.pinned)) * self.page_size

    def findable(self) -> set[tuple[Namespace, tuple[int, ...]]]:
        return {(where, tokens) for generation, where, tokens in self.used if generation == self.generation}

    def _path(self, generation: int, namespace: Namespace, tokens: tuple[int, ...]) -> list[Prefix]:
        path = []
        for prefix in self._pages(generation, namespace, tokens):
            if prefix not in self.used:
                break
            path.append(prefix)
        return path

    def _pages(self, generation: int, namespace: Namespace, tokens: tuple[int, ...]) -> list[Prefix]:
        ends = range(self.page_size, len(tokens) + 1, self.page_size)
        return [(generation, namespace, tokens[:end]) for end in ends]

    def _mark_used(self, lease: TwinLease) -> None:
        self.now += 1
        for prefix in self._pages(lease.generation, lease.namespace, lease.tokens):
            self.used[prefix] = self.now

    def _evict_one(self) -> None:
        """Of the pages that nobody reads and nothing follows, drop the one whose last use is longest ago."""
        pinned = self.pinned
        parents = {(generation, where, tokens[: -self.page_size]) for generation, where, tokens in self.used}
        leaves = [prefix for prefix in self.used if prefix not in pinned and prefix not in parents]
        del self.used[min(leaves, key=lambda prefix: self.used[prefix])]
        self.evicted += 1

    def _drop_unreachable(self) -> None:
        pinned = self.pinned
        for prefix in list(self.used):
            if prefix[0] != self.generation and prefix not in pinned:
                del self.used[prefix]
