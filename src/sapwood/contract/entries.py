"""What is promised to be cached, until when: bounded, and fair between namespaces."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sapwood.contract.prefix_keys import PrefixKey


@dataclass(frozen=True, slots=True)
class Limits:
    """Most entries, over all and of one namespace. An entry takes about 300 bytes."""

    entries: int = 131_072
    per_namespace: int = 32_768


@dataclass(frozen=True, slots=True)
class Entry:
    """One cached prefix. Times in seconds.

    Attributes:
        ttl: how long it lives after its last use.
        expires: when it is gone; that moment included.
        dies: when it is gone however much it is used.
    """

    ttl: float
    expires: float
    dies: float = math.inf

    def used(self, at: float) -> Entry:
        return Entry(self.ttl, max(self.expires, min(at + self.ttl, self.dies)), self.dies)


class _Shelf:
    """One namespace's entries, those of one ttl together: there the order of use is the order of expiry."""

    def __init__(self) -> None:
        self._by_ttl: dict[float, dict[PrefixKey, Entry]] = {}

    def __len__(self) -> int:
        return sum(len(group) for group in self._by_ttl.values())

    def get(self, key: PrefixKey) -> Entry | None:
        return next((group[key] for group in self._by_ttl.values() if key in group), None)

    def put(self, key: PrefixKey, entry: Entry) -> None:
        for group in self._by_ttl.values():
            group.pop(key, None)
        self._by_ttl.setdefault(entry.ttl, {})[key] = entry

    def sweep(self, now: float) -> None:
        for group in self._by_ttl.values():
            while group and group[key := next(iter(group))].expires <= now:
                del group[key]

    def drop(self, count: int) -> None:
        """Each time, of the ones used longest ago (one for each ttl), the first to expire."""
        for _ in range(count):
            key, entry = min(self._oldest(), key=lambda item: item[1].expires)
            del self._by_ttl[entry.ttl][key]

    def _oldest(self) -> Iterator[tuple[PrefixKey, Entry]]:
        return (next(iter(group.items())) for group in self._by_ttl.values() if group)


class Entries:
    """Entries by namespace and key."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._shelves: dict[str, _Shelf] = {}
        self._count = 0

    def __len__(self) -> int:
        """Those kept, expired ones that nothing has swept away yet included."""
        return self._count

    def get(self, namespace: str, key: PrefixKey, now: float) -> Entry | None:
        """The entry, if it has not expired."""
        shelf = self._shelves.get(namespace)
        entry = None if shelf is None else shelf.get(key)
        return None if entry is None or entry.expires <= now else entry

    def put(self, namespace: str, entries: Mapping[PrefixKey, Entry], now: float) -> None:
        """In the order in which they are to go when room is short; what has expired goes first."""
        if not entries:
            return
        shelf = self._shelves.setdefault(namespace, _Shelf())
        before = len(shelf)
        shelf.sweep(now)
        for key, entry in entries.items():
            shelf.put(key, entry)
        shelf.drop(len(shelf) - self._limits.per_namespace)
        self._count += len(shelf) - before
        if self._count > self._limits.entries:
            self._make_room(now)

    def _make_room(self, now: float) -> None:
        for shelf in self._shelves.values():
            shelf.sweep(now)
        self._shelves = {name: shelf for name, shelf in self._shelves.items() if len(shelf)}
        self._count = sum(len(shelf) for shelf in self._shelves.values())
        while self._count > self._limits.entries:
            # Who has the most gives, so that nobody can push the others out.
            most = max(self._shelves.values(), key=len)
            before = len(most)
            most.drop(min(self._count - self._limits.entries, 1 + before // 8))
            self._count -= before - len(most)
