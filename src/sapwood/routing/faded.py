"""What a replica was taken to have given up, and may hold all the same: its policy is not the shadow's."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence, Set

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
    """Keys of blocks that an lru cache would have evicted, the latest last; at most one for each of its capacity."""

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

    def discard(self, key: BlockKey) -> None:
        """It is held again, or surely gone."""
        self._keys.pop(key, None)

    def blocks(self, keys: Sequence[BlockKey], held: int, others: Set[BlockKey] = frozenset()) -> int:
        """Leading blocks of a prompt that were held once, as far as none between is missing; 0 if no more than `held`.

        Args:
            held: how many are.
            others: keys that count as given up too.
        """
        end = held // _STRIDE * _STRIDE
        while end + _STRIDE <= len(keys):
            key = keys[end + _STRIDE - 1]
            if key not in self._keys and key not in others:
                break
            end += _STRIDE
        return end if end > held else 0
