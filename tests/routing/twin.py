"""The shadow's slow twin: each replica a list of prefixes, the least recently used first."""

from __future__ import annotations

Prefix = tuple[int, ...]


class SlowShadow:
    def __init__(self, capacity_blocks: int) -> None:
        self.capacity = capacity_blocks
        self.sizes: dict[int, int] = {}
        self.held: dict[int, list[Prefix]] = {}
        self.sure: dict[int, set[Prefix]] = {}

    def matched(self, replica: int, names: Prefix) -> int:
        held = self.held.get(replica, [])
        return max(n for n in range(len(names) + 1) if n == 0 or names[:n] in held)

    def place(self, replica: int, names: Prefix) -> None:
        held = self.held.setdefault(replica, [])
        for end in range(len(names), 0, -1):
            if names[:end] in held:
                held.remove(names[:end])
            held.append(names[:end])
        del held[: max(0, len(held) - self.sizes.setdefault(replica, self.capacity))]
        self.sure.setdefault(replica, set()).intersection_update(held)

    def store(self, replica: int, names: Prefix) -> None:
        self.place(replica, names)
        prefixes = {names[:end] for end in range(1, len(names) + 1)}
        self.sure[replica] |= prefixes & set(self.held[replica])

    def withdraw(self, replica: int, names: Prefix) -> None:
        for end in range(1, len(names) + 1):
            if names[:end] not in self.sure.get(replica, set()):
                self.drop(replica, names[:end])
                return

    def drop(self, replica: int, names: Prefix) -> None:
        held = [each for each in self.held.get(replica, []) if each[: len(names)] != names]
        if replica in self.held:
            self.held[replica] = held
            self.sure[replica].intersection_update(held)

    def forget(self, replica: int) -> None:
        self.held.pop(replica, None)
        self.sure.pop(replica, None)
        self.sizes.pop(replica, None)

    def resize(self, replica: int, blocks: int) -> None:
        self.sizes[replica] = blocks
        self.place(replica, ())
