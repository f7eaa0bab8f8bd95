"""What one replica probably holds: blocks in the order in which it gives them up, and how much they are asked for."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence, Set
from itertools import islice

from sapwood.routing.block_tree import Block

_SAMPLE = 16
"""Blocks looked at for what a placement would evict; more are taken to be worth as much."""

_MOST = 1000.0


class Held:
    """Least recently used first, and always a block before the ones that it follows.

    A block's heat is its number of uses, each counting half after `half_life` seconds. What is kept is its logarithm at
    time 0, which does not change while nothing happens.

    Attributes:
        bit: of its replica, in `Block.holders`.
        capacity: blocks.
    """

    __slots__ = ("_half_life", "_heats", "bit", "capacity")

    def __init__(self, bit: int, capacity: int, half_life: float) -> None:
        self.bit = bit
        self.capacity = capacity
        self._half_life = half_life
        self._heats: OrderedDict[Block, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._heats)

    def __iter__(self) -> Iterator[Block]:
        return iter(self._heats)

    def __contains__(self, block: Block) -> bool:
        return block in self._heats

    def use(self, path: Sequence[Block], now: float, *, again: bool) -> None:
        """Hold all of a path from its start, as what was used last; `again` counts as a use what was held before."""
        heats, bit, age = self._heats, self.bit, now / self._half_life
        for block in reversed(path):
            heat = heats.get(block)
            if heat is None:
                heats[block] = age
                block.holders |= bit
            else:
                heats.move_to_end(block)
                if again:
                    heats[block] = age + math.log2(1.0 + _power_of_2(heat - age))

    def surplus(self) -> Iterator[Block]:
        """The blocks beyond its capacity, taken out of here one by one."""
        while len(self._heats) > self.capacity:
            yield self._heats.popitem(last=False)[0]

    def remove(self, block: Block) -> None:
        del self._heats[block]

    def lost(self, blocks: int, spared: Set[Block], now: float) -> float:
        """Of what `blocks` more would evict, how many blocks would be asked for again, by their heat h: h / (1 + h).

        `spared` are in use, and not evicted. Looks at the first few alone.
        """
        over = min(len(self._heats), len(self._heats) + blocks - self.capacity)
        if over <= 0:
            return 0.0
        victims = (heat for block, heat in self._heats.items() if block not in spared)
        age = now / self._half_life
        chances = [1.0 / (1.0 + _power_of_2(age - heat)) for heat in islice(victims, min(over, _SAMPLE))]
        return over * sum(chances) / len(chances) if chances else 0.0


def _power_of_2(exponent: float) -> float:
    """Of any exponent: what has been idle for weeks must not overflow."""
    return math.pow(2.0, min(exponent, _MOST))
