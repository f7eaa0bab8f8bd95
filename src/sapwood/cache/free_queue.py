"""The blocks that no lease pins, the next to be evicted at the head."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sapwood.cache.block import Block
from sapwood.errors import BooksError


class FreeQueue:
    """A doubly linked list through the blocks themselves, so that one is taken out of the middle in O(1)."""

    def __init__(self) -> None:
        self._head: Block | None = None
        self._tail: Block | None = None
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Block]:
        block = self._head
        while block is not None:
            yield block
            block = block.after

    def append(self, block: Block) -> None:
        block.before = self._tail
        if self._tail is None:
            self._head = block
        else:
            self._tail.after = block
        self._tail = block
        self._size += 1

    def pop(self) -> Block:
        """Take out the head. Raises BooksError if there is none."""
        if self._head is None:
            raise BooksError("a block is to be evicted and none is free")
        block = self._head
        self.remove(block)
        return block

    def remove(self, block: Block) -> None:
        """Raises BooksError if the block is not in the queue."""
        before, after = block.before, block.after
        if before is None and self._head is not block:
            raise BooksError(f"{block} is to leave the free queue and is not in it")
        if before is None:
            self._head = after
        else:
            before.after = after
        if after is None:
            self._tail = before
        else:
            after.before = before
        block.before = block.after = None
        self._size -= 1

    def check(self, expected: Collection[Block]) -> None:
        """Raises BooksError unless exactly the expected blocks are linked here, none before what follows it."""
        missing = {id(block): block for block in expected}
        before: Block | None = None
        gone: set[int] = set()
        for block in self:
            if block.before is not before:
                raise BooksError(f"{block} has another block before it than the free queue")
            if missing.pop(id(block), None) is None:
                raise BooksError(f"{block} is in the free queue and must not be, or is in it twice")
            if id(block.parent) in gone:
                raise BooksError(f"{block} is to be evicted after its parent")
            gone.add(id(block))
            before = block
        for block in missing.values():
            raise BooksError(f"{block} can be evicted and is missing from the free queue")
        if self._tail is not before:
            raise BooksError(f"the free queue ends with {before}, its books with {self._tail}")
        if self._size != len(expected):
            raise BooksError(f"the free queue counts {self._size} blocks; a recount gives {len(expected)}")
