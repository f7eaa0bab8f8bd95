"""A prompt on its way to a replica."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sapwood.routing.block_keys import BlockKey
from sapwood.routing.block_tree import Block
from sapwood.routing.held import Held


@dataclass(frozen=True, slots=True, eq=False)
class Coming:
    """Of `Shadow.place`, until `settle` or `withdraw`. Once its replica was forgotten it is nothing."""

    replica: int
    path: Sequence[Block]
    held: Held
    """What its replica held then."""
    store: int
    """The last store there before it."""

    @property
    def keys(self) -> list[BlockKey]:
        return [block.key for block in self.path]
