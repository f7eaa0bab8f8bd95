"""All blocks that can be found, by chained hash. A hash alone is never believed."""

from __future__ import annotations

from collections.abc import Iterator

from sapwood.cache.block import Block, Parent
from sapwood.cache.chain import ChainHash
from sapwood.errors import BooksError


class BlockMap:
    """Blocks of one hash are linked through `alike`; there is one, unless the hash collides.

    A find compares the tokens and the block before, which stands for all earlier tokens and the namespace. So
    a bad hash costs time and cannot give a wrong answer.
    """

    def __init__(self) -> None:
        self._first: dict[ChainHash, Block] = {}

    def __contains__(self, chained: ChainHash) -> bool:
        return chained in self._first

    def __iter__(self) -> Iterator[Block]:
        for chained in self._first:
            yield from self.alike(chained)

    def alike(self, chained: ChainHash) -> Iterator[Block]:
        """The blocks filed under one hash."""
        block = self._first.get(chained)
        while block is not None:
            yield block
            block = block.alike

    def filed(self) -> Iterator[ChainHash]:
        """The hashes that blocks are filed under."""
        return iter(self._first)

    def find(self, chained: ChainHash, parent: Parent, content: bytes) -> Block | None:
        block = self._first.get(chained)
        while block is not None and not (block.content == content and block.parent == parent):
            block = block.alike
        return block

    def add(self, block: Block) -> None:
        block.alike = self._first.get(block.hash)
        self._first[block.hash] = block
        block.filed = True

    def remove(self, block: Block) -> None:
        """Raises BooksError if the block is not here."""
        before: Block | None = None
        for each in self.alike(block.hash):
            if each is block:
                break
            before = each
        else:
            raise BooksError(f"{block} is to be forgotten and cannot be found")
        if before is not None:
            before.alike = block.alike
        elif block.alike is not None:
            self._first[block.hash] = block.alike
        else:
            del self._first[block.hash]
        block.alike, block.filed = None, False

    def clear(self) -> None:
        for block in list(self):
            block.alike, block.filed = None, False
        self._first.clear()
