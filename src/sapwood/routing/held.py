"""What one replica probably holds, in the order in which it gives it up; how much that is asked for; what will come."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence, Set
from itertools import islice
from typing import NamedTuple

from sapwood.routing.block_tree import Block
from sapwood.routing.faded import Faded

_SAMPLE = 16
"""Blocks looked at for what a placement would evict; more are taken to be worth as much."""

_MOST = 1000.0


class _Use(NamedTuple):
    """Of a block. One stands for all blocks of a path that are new alike."""

    heat: float
    """Its logarithm to base 2, at time 0."""
    store: int
    """The number of the store that it was part of last."""


class Held:
    """Least recently stored first, and always a block before the ones that it follows; beside that, what is to come.

    A block's heat is its number of uses, each counting half after `half_life` seconds. What is kept is its logarithm at
    time 0, which does not change while nothing happens. What is to come takes no room and changes no order: it may
    never come.

    Attributes:
        bit: of its replica, in `Block.holders` and `Block.coming`.
        capacity: blocks.
        stores: how many there were.
        coming: requests that have not ended, for each block that they go through.
        to_come: of these blocks, how many are not held yet.
        faded: what was given up.
    """

    __slots__ = ("_half_life", "_uses", "bit", "capacity", "coming", "faded", "stores", "to_come")

    def __init__(self, bit: int, capacity: int, half_life: float) -> None:
        self.bit = bit
        self.capacity = capacity
        self.stores = 0
        self._half_life = half_life
        self._uses: OrderedDict[Block, _Use] = OrderedDict()
        self.coming: dict[Block, int] = {}
        self.to_come = 0
        self.faded = Faded()

    def __len__(self) -> int:
        return len(self._uses)

    def __iter__(self) -> Iterator[Block]:
        return iter(self._uses)

    def use(self, path: Sequence[Block], now: float, *, again: bool) -> None:
        """Hold all of a path from its start, as stored last; `again` counts as a use what was held before."""
        uses, bit, age = self._uses, self.bit, now / self._half_life
        self.stores += 1
        new = _Use(age, self.stores)
        for block in reversed(path):
            use = uses.get(block)
            if use is None:
                uses[block] = new
                self.faded.discard(block.key)
                block.holders |= bit
                self.to_come -= block in self.coming
                continue
            heat = age + math.log2(1.0 + _power_of_2(use.heat - age)) if again else use.heat
            uses[block] = _Use(heat, self.stores)
            uses.move_to_end(block)

    def stored_since(self, block: Block, store: int) -> bool:
        """Whether it is held and was part of a later store than that."""
        use = self._uses.get(block)
        return use is not None and use.store > store

    def surplus(self) -> Iterator[Block]:
        """The blocks beyond its capacity, given up one by one."""
        while len(self._uses) > self.capacity:
            block = next(iter(self._uses))
            self.remove(block)
            self.faded.add(block, self.capacity)
            yield block

    def remove(self, block: Block) -> None:
        del self._uses[block]
        self.to_come += block in self.coming

    def expect(self, path: Sequence[Block]) -> None:
        """One more request goes through these."""
        for block in path:
            count = self.coming.get(block, 0)
            self.coming[block] = count + 1
            if not count:
                block.coming |= self.bit
                self.to_come += block not in self._uses

    def expect_no_more(self, path: Sequence[Block]) -> list[Block]:
        """One less; those that none goes through any more, the last ones first, whose bit is to be taken away."""
        ended = []
        for block in reversed(path):
            count = self.coming[block] - 1
            if count:
                self.coming[block] = count
                continue
            del self.coming[block]
            self.to_come -= block not in self._uses
            ended.append(block)
        return ended

    def beyond(self, capacity: int) -> Set[Block]:
        """What it would give up first if it could hold only so much."""
        return frozenset(islice(self._uses, max(0, len(self._uses) - capacity)))

    def lost(self, blocks: int, spared: Set[Block], now: float, capacity: int) -> float:
        """Of what `blocks` more would evict, how many blocks would be asked for again, by their heat h: h / (1 + h).

        `spared` are in use, and not evicted. What goes in any case, for what is to come, is not counted. Looks at the
        first few alone.
        """
        held = len(self._uses)
        beyond = held + self.to_come - capacity
        over = min(held, max(0, beyond + blocks)) - min(held, max(0, beyond))
        if over <= 0:
            return 0.0
        rest = islice(self._uses.items(), max(0, held - capacity), None)
        victims = (use.heat for block, use in rest if block not in spared)
        age = now / self._half_life
        chances = [1.0 / (1.0 + _power_of_2(age - heat)) for heat in islice(victims, min(over, _SAMPLE))]
        return over * sum(chances) / len(chances) if chances else 0.0


def _power_of_2(exponent: float) -> float:
    """Of any exponent: what has been idle for weeks must not overflow."""
    return math.pow(2.0, min(exponent, _MOST))
