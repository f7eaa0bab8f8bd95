"""What each replica of a fleet probably holds, at the granularity of blocks: learned from what it was given.

    place     it was given a prompt                 it will hold it soon
    store     a request ended well, or it said so   it holds that now
    withdraw  a request failed                      it may not hold what only that one put there
    drop      it said so, or reused too little      it does not hold that, nor what follows
    forget    it is gone, or back and empty

Each replica gives up what was used least recently, a block never before one that follows it, once it holds more than
its capacity: what a radix tree or a map of hashed pages does under lru. Other policies keep other things; what
replicas tell (`store`, `drop`) mends that.

Memory: BYTES_PER_BLOCK for each block that anybody holds, at most the sum of the replicas' capacities; nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from sapwood.errors import BooksError, UsageError
from sapwood.routing.block_keys import BLOCK_TOKENS, BlockKey
from sapwood.routing.block_tree import Block, BlockTree
from sapwood.routing.held import Held

BYTES_PER_BLOCK = 600
"""At most, for one that one replica holds; a test measures it."""

HALF_LIFE_SECONDS = 180.0
"""Of how hot a block is. Preble looks back as long."""


@dataclass(frozen=True, slots=True, eq=False)
class Sighting:
    """A prompt looked up: `path` is the longest prefix that any replica holds, block by block."""

    path: Sequence[Block]
    blocks: Set[Block]
    """The same."""

    def is_end(self, blocks: int) -> bool:
        """Whether nothing is known to follow its first `blocks` blocks, anywhere."""
        return blocks == len(self.path) > 0 and self.path[-1].first is None


class Shadow:
    """One for a whole fleet. Replicas are known from the first time that something is placed there.

    Args:
        capacity_tokens: of a replica's cache, if `resize` says nothing else. Raises UsageError below 1.
        block_tokens: tokens in a block.
    """

    def __init__(
        self,
        capacity_tokens: int,
        block_tokens: int = BLOCK_TOKENS,
        half_life_seconds: float = HALF_LIFE_SECONDS,
    ) -> None:
        if capacity_tokens < 1 or block_tokens < 1:
            raise UsageError(
                f"caches hold {capacity_tokens} tokens in blocks of {block_tokens}; both must be at least 1"
            )
        self.block_tokens = block_tokens
        self._capacity = capacity_tokens // block_tokens
        self._half_life = half_life_seconds
        self._tree = BlockTree()
        self._held: dict[int, Held] = {}

    def __len__(self) -> int:
        """Blocks that anybody holds, each once."""
        return len(self._tree)

    def held(self, replica: int) -> int:
        """Blocks that it holds."""
        held = self._held.get(replica)
        return 0 if held is None else len(held)

    def look(self, keys: Sequence[BlockKey]) -> Sighting:
        """Changes nothing."""
        path = self._tree.path(keys)
        return Sighting(path, frozenset(path))

    def matched(self, sighting: Sighting, replica: int) -> int:
        """How many blocks of it the replica holds: it holds none after the first that it does not."""
        held = self._held.get(replica)
        return 0 if held is None else _first_without(held.bit, sighting.path)

    def sure(self, sighting: Sighting, replica: int) -> int:
        """Of these, how many do not hang on a request that has not ended yet."""
        held = self._held.get(replica)
        bit = 0 if held is None else held.bit
        return sum(1 for block in sighting.path if block.sure & bit)

    def lost(self, replica: int, blocks: int, sighting: Sighting, now: float) -> float:
        """If so many more blocks come: how many of those given up would be asked for again. Changes nothing."""
        held = self._held.get(replica)
        return 0.0 if held is None else held.lost(blocks, sighting.blocks, now)

    def resize(self, replica: int, capacity_tokens: int) -> None:
        """It has said how much it can hold."""
        held = self._held_by(replica)
        held.capacity = capacity_tokens // self.block_tokens
        self._trim(held)

    def place(self, replica: int, keys: Sequence[BlockKey], now: float) -> None:
        """It was given a prompt of these keys: a use of all that it holds of it, and soon it will hold the rest."""
        held = self._held_by(replica)
        held.use(self._tree.grown(keys), now, again=True)
        self._trim(held)

    def store(self, replica: int, keys: Sequence[BlockKey], now: float) -> None:
        """It holds all of these now, from the first block of a namespace on."""
        held = self._held_by(replica)
        path = self._tree.grown(keys)
        held.use(path, now, again=False)
        self._trim(held)
        for block in path:
            block.sure |= held.bit & block.holders

    def withdraw(self, replica: int, keys: Sequence[BlockKey]) -> None:
        """Of a path that was placed, forget what nobody is sure of."""
        held = self._held.get(replica)
        if held is not None:
            path = self._tree.path(keys)
            self._let_go(held, [block for block in path if not block.sure & held.bit][:1])

    def drop(self, replica: int, keys: Iterable[BlockKey]) -> None:
        """It holds none of these blocks, nor what follows them. What is not known is passed over."""
        held = self._held.get(replica)
        if held is not None:
            for key in keys:
                block = self._tree.get(key)
                self._let_go(held, [] if block is None else [block])

    def forget(self, replica: int) -> None:
        """It holds nothing."""
        held = self._held.pop(replica, None)
        for block in () if held is None else list(held):
            self._tree.let_go(block, held.bit if held is not None else 0)

    def check(self) -> None:
        """Prove the books by a recount. Raises BooksError."""
        self._tree.check()
        bits = [held.bit for held in self._held.values()]
        if len(set(bits)) != len(bits):
            raise BooksError("two replicas have the same bit")
        for replica, held in self._held.items():
            if len(held) > held.capacity:
                raise BooksError(f"replica {replica} holds {len(held)} blocks, more than its {held.capacity}")
            if set(held) != {block for block in self._tree if block.holders & held.bit}:
                raise BooksError(f"what replica {replica} holds and what says so differ")
            seen: set[Block] = set()
            for block in held:
                seen.add(block)
                if block.parent in seen:
                    raise BooksError(f"replica {replica} would give up a block before one that follows it")

    def _held_by(self, replica: int) -> Held:
        held = self._held.get(replica)
        if held is None:
            taken = sum(each.bit for each in self._held.values())
            bit = ~taken & (taken + 1)  # the lowest that is free
            held = self._held[replica] = Held(bit, self._capacity, self._half_life)
        return held

    def _trim(self, held: Held) -> None:
        for block in held.surplus():
            self._tree.let_go(block, held.bit)

    def _let_go(self, held: Held, tops: Sequence[Block]) -> None:
        for top in tops:
            for block in reversed(self._tree.held_below(top, held.bit)):
                held.remove(block)
                self._tree.let_go(block, held.bit)


def _first_without(bit: int, path: Sequence[Block]) -> int:
    """Blocks that a replica holds of a path, by halving: it holds a prefix of it."""
    low, high = 0, len(path)
    while low < high:
        middle = (low + high) // 2
        if path[middle].holders & bit:
            low = middle + 1
        else:
            high = middle
    return low
