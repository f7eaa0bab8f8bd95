"""The shadow's slow twin: each replica a list of prefixes, least recently stored first, and a list of placements."""

from __future__ import annotations

from dataclasses import dataclass

Prefix = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Placed:
    replica: int
    names: Prefix
    at: int
    """How many stores there were."""


class SlowShadow:
    def __init__(self, capacity_blocks: int) -> None:
        self.capacity = capacity_blocks
        self.sizes: dict[int, int] = {}
        self.held: dict[int, list[Prefix]] = {}
        self.placed: list[Placed] = []
        self.stored: dict[tuple[int, Prefix], int] = {}
        self.stores = 0

    def matched(self, replica: int, names: Prefix) -> int:
        there = [*self.held.get(replica, []), *self.coming(replica)]
        return max(n for n in range(len(names) + 1) if n == 0 or names[:n] in there)

    def sure(self, replica: int, names: Prefix) -> int:
        return sum(names[:end] in self.held.get(replica, []) for end in range(1, len(names) + 1))

    def coming(self, replica: int) -> set[Prefix]:
        paths = [placed.names for placed in self.placed if placed.replica == replica]
        return {path[:end] for path in paths for end in range(1, len(path) + 1)}

    def place(self, replica: int, names: Prefix) -> Placed:
        placed = Placed(replica, names, self.stores)
        self.placed.append(placed)
        return placed

    def settle(self, placed: Placed, names: Prefix) -> None:
        self.store(placed.replica, names)
        self.withdraw(placed)

    def withdraw(self, placed: Placed) -> None:
        self.placed = [each for each in self.placed if each is not placed]

    def missed(self, placed: Placed, first: int, last: int) -> None:
        for end in range(first + 1, last + 1):
            prefix = placed.names[:end]
            old = self.stored.get((placed.replica, prefix), 0) <= placed.at
            if placed in self.placed and len(prefix) == end and old:
                self.drop(placed.replica, prefix)

    def store(self, replica: int, names: Prefix) -> None:
        self.stores += 1
        held = self.held.setdefault(replica, [])
        for end in range(len(names), 0, -1):
            if names[:end] in held:
                held.remove(names[:end])
            held.append(names[:end])
            self.stored[replica, names[:end]] = self.stores
        del held[: max(0, len(held) - self.sizes.setdefault(replica, self.capacity))]

    def drop(self, replica: int, names: Prefix) -> None:
        if replica in self.held:
            self.held[replica] = [each for each in self.held[replica] if each[: len(names)] != names]

    def forget(self, replica: int) -> None:
        self.held.pop(replica, None)
        self.sizes.pop(replica, None)
        self.placed = [each for each in self.placed if each.replica != replica]

    def cut(self, replica: int, blocks: int) -> SlowShadow:
        """A copy in which a replica holds no more than that."""
        copy = SlowShadow(self.capacity)
        copy.placed, held = list(self.placed), self.held.get(replica, [])
        copy.held[replica] = held[max(0, len(held) - blocks) :]
        return copy

    def resize(self, replica: int, blocks: int) -> None:
        self.sizes[replica] = blocks
        self.store(replica, ())
