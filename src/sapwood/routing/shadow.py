"""What each replica of a fleet probably holds, at the granularity of blocks: learned from what it was given.

    place     it was given a prompt                 it will hold it soon
    settle    that request ended well               it holds that now
    withdraw  that request failed                   as if it had never been
    missed    it found less than was held           it does not hold that, unless it was given it since
    store     it said so                            it holds that now
    drop      it said so                            it does not hold that, nor what follows
    forget    it is gone, or back and empty

Each replica gives up what was stored least recently, a block never before one that follows it, once it holds more than
its capacity: what a radix tree or a map of hashed pages does under lru. Other policies keep other things; what
replicas tell (`store`, `drop`) mends that. What is on its way takes no room and ages nothing, so a request that never
runs, however long, costs nobody anything.

Memory: BYTES_PER_BLOCK for each block that a replica holds, at most the sum of the replicas' capacities, and as much
for each block of each prompt in flight; nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from sapwood.errors import BooksError, UsageError
from sapwood.routing.block_keys import BLOCK_TOKENS, BlockKey
from sapwood.routing.block_tree import Block, BlockTree, at_hand_of, held_of
from sapwood.routing.coming import Coming
from sapwood.routing.faded import is_kept
from sapwood.routing.held import Held

BYTES_PER_BLOCK = 700
"""At most, for one that one replica holds or that one request in flight goes through; a test measures both."""

HALF_LIFE_SECONDS = 180.0
"""Of how hot a block is. Preble looks back as long."""


@dataclass(frozen=True, slots=True, eq=False)
class Sighting:
    """A prompt looked up: `path` is the longest prefix that any replica holds or will hold, block by block."""

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
        """Blocks that anybody holds or will hold, each once."""
        return len(self._tree)

    def held(self, replica: int) -> int:
        """Blocks that it holds, without what is on its way."""
        held = self._held.get(replica)
        return 0 if held is None else len(held)

    def look(self, keys: Sequence[BlockKey]) -> Sighting:
        """Changes nothing."""
        path = self._tree.path(keys)
        return Sighting(path, frozenset(path))

    def matched(self, sighting: Sighting, replica: int, capacity_tokens: int | None = None) -> int:
        """How many blocks of it the replica holds or will hold: none after the first that it does not.

        `capacity_tokens`: as if it had been resized to that.
        """
        held = self._held.get(replica)
        if held is None:
            return 0
        count, gone = at_hand_of(sighting.path, held.bit), held.beyond(self._blocks(held, capacity_tokens))
        if gone:
            for n, block in enumerate(sighting.path[:count]):
                if block in gone and not block.coming & held.bit:
                    return n
        return count

    def sure(self, sighting: Sighting, replica: int) -> int:
        """Of these, how many do not hang on a request that has not ended yet."""
        held = self._held.get(replica)
        return 0 if held is None else held_of(sighting.path, held.bit)

    def once(
        self, keys: Sequence[BlockKey], sighting: Sighting, replica: int, capacity_tokens: int | None = None
    ) -> int:
        """How many blocks of a prompt the replica held some time, of those that it has given up; 0 if none are known.

        Caches that do not evict by lru may hold them still. `capacity_tokens`: as if it had been resized to that.
        """
        held = self._held.get(replica)
        if held is None:
            return 0
        path = sighting.path[: held_of(sighting.path, held.bit)]
        gone = held.beyond(self._blocks(held, capacity_tokens))
        stay = next((n for n, block in enumerate(path) if block in gone), len(path)) if gone else len(path)
        return held.faded.blocks(keys, stay, {block.key for block in path[stay:] if is_kept(block)})

    def lost(
        self, replica: int, blocks: int, sighting: Sighting, now: float, capacity_tokens: int | None = None
    ) -> float:
        """If so many more blocks come: how many of those given up would be asked for again. Changes nothing.

        `capacity_tokens`: as if it had been resized to that.
        """
        held = self._held.get(replica)
        if held is None:
            return 0.0
        return held.lost(blocks, sighting.blocks, now, self._blocks(held, capacity_tokens))

    def resize(self, replica: int, capacity_tokens: int) -> None:
        """It has said how much it can hold. Raises UsageError below 0."""
        if capacity_tokens < 0:
            raise UsageError(f"replica {replica} holds {capacity_tokens} tokens; it cannot be below 0")
        held = self._held_by(replica)
        held.capacity = capacity_tokens // self.block_tokens
        self._trim(held)

    def place(self, replica: int, keys: Sequence[BlockKey]) -> Coming:
        """It was given a prompt of these keys, and soon will hold them."""
        held = self._held_by(replica)
        path = self._of_prompt(keys)
        held.expect(path)
        return Coming(replica, path, held, held.stores)

    def settle(self, coming: Coming, keys: Sequence[BlockKey], now: float) -> None:
        """The request has ended well, and its replica holds these now: they were used once more. Once for each."""
        self._store(self._held_by(coming.replica), self._of_prompt(keys), now, again=True)
        self.withdraw(coming)

    def withdraw(self, coming: Coming) -> None:
        """The request has failed. Once for each; what other requests put there or are to put there stays."""
        if self._is_known(coming):
            for block in coming.held.expect_no_more(coming.path):
                self._tree.expect_no_more(block, coming.held.bit)

    def missed(self, coming: Coming, first: int, last: int) -> None:
        """When the request began, blocks `first` up to `last` of its prompt were not there, nor what follows them."""
        if self._is_known(coming):
            for block in coming.path[first:]:
                coming.held.faded.discard(block.key)
            for block in coming.path[first:last]:
                if not coming.held.stored_since(block, coming.store):
                    self._let_go(coming.held, block)
                    return  # With it went all that follows.

    def store(
        self, replica: int, keys: Sequence[BlockKey], now: float, after: BlockKey | None = None
    ) -> None:
        """It has said that it holds all of these, which follow `after`; None: from the first block of a namespace on.

        What follows a block that it is not known to hold is passed over. Raises UsageError for blocks that are known
        to follow another one.
        """
        parent = None if after is None else self._tree.get(after)
        held = self._held_by(replica)
        if after is None or (parent is not None and parent.holders & held.bit):
            start: Sequence[Block] = () if parent is None else parent.path()
            self._store(held, self._tree.grown(keys, start), now, again=False)

    def drop(self, replica: int, keys: Iterable[BlockKey]) -> None:
        """It holds none of these blocks, nor what follows them. What is not known is passed over.

        What is on its way is still to come.
        """
        held = self._held.get(replica)
        if held is None:
            return
        for key in keys:
            held.faded.discard(key)
            if (block := self._tree.get(key)) is not None:
                self._let_go(held, block)

    def forget(self, replica: int) -> None:
        """It holds nothing, and what was on its way never comes."""
        held = self._held.pop(replica, None)
        if held is not None:
            for block in list(held):
                self._tree.let_go(block, held.bit)
            for block in held.coming:
                self._tree.expect_no_more(block, held.bit)

    def check(self) -> None:
        """Prove the books by a recount. Raises BooksError."""
        self._tree.check()
        bits = [held.bit for held in self._held.values()]
        if len(set(bits)) != len(bits):
            raise BooksError("two replicas have the same bit")
        for replica, held in self._held.items():
            self._check(replica, held)

    def _check(self, replica: int, held: Held) -> None:
        if len(held) > held.capacity:
            raise BooksError(f"replica {replica} holds {len(held)} blocks, more than its {held.capacity}")
        if set(held) != {block for block in self._tree if block.holders & held.bit}:
            raise BooksError(f"what replica {replica} holds and what says so differ")
        if set(held.coming) != {block for block in self._tree if block.coming & held.bit}:
            raise BooksError(f"what is to come to replica {replica} and what says so differ")
        if held.to_come != len(set(held.coming) - set(held)):
            raise BooksError(f"replica {replica} counts {held.to_come} blocks that are to come")
        seen: set[Block] = set()
        for block in held:
            seen.add(block)
            if block.parent in seen:
                raise BooksError(f"replica {replica} would give up a block before one that follows it")

    def _of_prompt(self, keys: Sequence[BlockKey]) -> list[Block]:
        """Its blocks. Its keys say what follows what; what was told otherwise (`store`) was wrong, and is dropped."""
        while (torn := self._tree.torn(keys)) is not None:
            for held in self._held.values():
                if torn.holders & held.bit:
                    self._let_go(held, torn)
        return self._tree.grown(keys)

    def _blocks(self, held: Held, capacity_tokens: int | None) -> int:
        return held.capacity if capacity_tokens is None else capacity_tokens // self.block_tokens

    def _is_known(self, coming: Coming) -> bool:
        return self._held.get(coming.replica) is coming.held

    def _held_by(self, replica: int) -> Held:
        held = self._held.get(replica)
        if held is None:
            taken = sum(each.bit for each in self._held.values())
            bit = ~taken & (taken + 1)  # the lowest that is free
            held = self._held[replica] = Held(bit, self._capacity, self._half_life)
        return held

    def _store(self, held: Held, path: Sequence[Block], now: float, *, again: bool) -> None:
        held.use(path, now, again=again)
        self._trim(held)

    def _trim(self, held: Held) -> None:
        for block in held.surplus():
            self._tree.let_go(block, held.bit)

    def _let_go(self, held: Held, top: Block) -> None:
        for block in reversed(self._tree.held_below(top, held.bit)):
            held.remove(block)
            self._tree.let_go(block, held.bit)
