"""What a replica was taken to have given up, and may hold all the same: its policy is not the shadow's."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from sapwood.routing.block_keys import BlockKey
from sapwood.routing.block_tree import Block

_STRIDE = 8
"""Every so many blocks of a prefix one is kept: a key stands for all before it."""

_TIMES = 8
"""Times the blocks that a replica holds: policies other than lru keep what is as old as that."""


def is_kept(block: Block) -> bool:
    """Whether its key is, once it is given up."""
    return block.depth % _STRIDE == 0


class Faded:
    """Keys of blocks that an lru cache would have evicted, the latest last; about one for each block held."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        self._keys: OrderedDict[BlockKey, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, block: Block, capacity: int) -> None:
        """It was given up by a replica that holds so many blocks."""
        if not is_kept(block):
            return
        self._keys[block.key] = None
        self._keys.move_to_end(block.key)
        while len(self._keys) > capacity * _TIMES // _STRIDE:
            self._keys.popitem(last=False)

    def blocks(self, keys: Sequence[BlockKey]) -> int:
        """Leading blocks of a prompt that were held once; 0 if none are known."""
        for end in range(len(keys) // _STRIDE * _STRIDE, 0, -_STRIDE):
            if keys[end - 1] in self._keys:
                return end
        return 0
