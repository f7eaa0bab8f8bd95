"""All blocks that any replica probably holds, once each, with a bit for every replica that does.

P0 ── P1 ──┬── a0 ── a1            holders of P1: replicas 0 and 2; of a0: 0; of b0: 2
           └── b0                  whoever holds a block holds all before it
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sapwood.errors import BooksError
from sapwood.routing.block_keys import BlockKey


class Block:
    """One block of a prefix. Its key stands for all before it too.

    Attributes:
        depth: blocks up to its end.
        holders: a bit for each replica that was given it or said that it has it.
        sure: of these, those where a request that went through it has ended well, or that said so.
        first: one of those that follow; `before` and `after` are its neighbours there.
    """

    __slots__ = ("after", "before", "depth", "first", "holders", "key", "parent", "sure")

    def __init__(self, key: BlockKey, parent: Block | None) -> None:
        self.key = key
        self.parent = parent
        self.depth: int = 1 if parent is None else parent.depth + 1
        self.holders = 0
        self.sure = 0
        self.first: Block | None = None
        self.before: Block | None = None
        self.after: Block | None = None

    def following(self) -> Iterator[Block]:
        block = self.first
        while block is not None:
            yield block
            block = block.after


class BlockTree:
    """Finds blocks by key, and forgets those that nobody holds."""

    def __init__(self) -> None:
        self._blocks: dict[BlockKey, Block] = {}

    def __len__(self) -> int:
        return len(self._blocks)

    def __iter__(self) -> Iterator[Block]:
        return iter(self._blocks.values())

    def get(self, key: BlockKey) -> Block | None:
        return self._blocks.get(key)

    def path(self, keys: Sequence[BlockKey]) -> list[Block]:
        """The blocks of the longest prefix that anybody holds. Changes nothing."""
        blocks = []
        for key in keys:
            block = self._blocks.get(key)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def grown(self, keys: Sequence[BlockKey]) -> list[Block]:
        """The blocks of the whole path; what is new is held by nobody yet, and has to be."""
        blocks = self.path(keys)
        parent = blocks[-1] if blocks else None
        for key in keys[len(blocks) :]:
            parent = self._add(key, parent)
            blocks.append(parent)
        return blocks

    def let_go(self, block: Block, bit: int) -> None:
        """One replica holds it no more, nor anything after it."""
        block.holders &= ~bit
        block.sure &= ~bit
        if not block.holders:
            self._remove(block)

    def held_below(self, block: Block, bit: int) -> list[Block]:
        """It and all after it that a replica holds, parents first."""
        found = [block] if block.holders & bit else []
        for each in found:  # grows as it goes
            found.extend(child for child in each.following() if child.holders & bit)
        return found

    def check(self) -> None:
        """Raises BooksError unless every block is held, after a parent held by the same, and linked to it."""
        children: dict[BlockKey, int] = {}
        for key, block in self._blocks.items():
            parent = block.parent
            if block.key != key or not block.holders or block.sure & ~block.holders:
                raise BooksError(f"a block at depth {block.depth} is filed wrongly, or held by nobody")
            if parent is None:
                continue
            if self._blocks.get(parent.key) is not parent:
                raise BooksError(f"what comes before a block at depth {block.depth} is forgotten")
            if block.holders & ~parent.holders or block.sure & ~parent.sure:
                raise BooksError(f"a block at depth {block.depth} is held without what comes before it")
            children[parent.key] = children.get(parent.key, 0) + 1
        for key, block in self._blocks.items():
            if sum(1 for _ in block.following()) != children.get(key, 0):
                raise BooksError(f"a block at depth {block.depth} has lost one that follows")

    def _add(self, key: BlockKey, parent: Block | None) -> Block:
        block = self._blocks[key] = Block(key, parent)
        if parent is not None:
            block.after = parent.first
            if parent.first is not None:
                parent.first.before = block
            parent.first = block
        return block

    def _remove(self, block: Block) -> None:
        del self._blocks[block.key]
        if block.after is not None:
            block.after.before = block.before
        if block.before is not None:
            block.before.after = block.after
        elif block.parent is not None:
            block.parent.first = block.after
