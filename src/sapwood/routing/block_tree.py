"""All blocks that any replica probably holds, or will, once each, with a bit for every replica that does.

P0 ── P1 ──┬── a0 ── a1            holders of P1: replicas 0 and 2; of a0: 0; of b0: 2
           └── b0                  whoever holds a block holds all before it; what is to come likewise
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from sapwood.errors import BooksError, UsageError
from sapwood.routing.block_keys import BlockKey


class Block:
    """One block of a prefix. Its key stands for all before it too.

    Attributes:
        depth: blocks up to its end.
        holders: a bit for each replica where a request through it has ended well, or that said that it has it.
        coming: a bit for each that was given a request that goes through it and has not ended.
        first: one of those that follow; `before` and `after` are its neighbours there.
    """

    __slots__ = ("after", "before", "coming", "depth", "first", "holders", "key", "parent")

    def __init__(self, key: BlockKey, parent: Block | None) -> None:
        self.key = key
        self.parent = parent
        self.depth: int = 1 if parent is None else parent.depth + 1
        self.holders = 0
        self.coming = 0
        self.first: Block | None = None
        self.before: Block | None = None
        self.after: Block | None = None

    def following(self) -> Iterator[Block]:
        block = self.first
        while block is not None:
            yield block
            block = block.after

    def path(self) -> list[Block]:
        """It and all before it, the first of its namespace first."""
        blocks, block = [self], self.parent
        while block is not None:
            blocks.append(block)
            block = block.parent
        return blocks[::-1]


class BlockTree:
    """Finds blocks by key, and forgets those that nobody holds or will hold."""

    def __init__(self) -> None:
        self._blocks: dict[BlockKey, Block] = {}

    def __len__(self) -> int:
        return len(self._blocks)

    def __iter__(self) -> Iterator[Block]:
        return iter(self._blocks.values())

    def get(self, key: BlockKey) -> Block | None:
        return self._blocks.get(key)

    def path(self, keys: Sequence[BlockKey]) -> list[Block]:
        """The blocks of the longest known prefix. Changes nothing."""
        blocks: list[Block] = []
        parent: Block | None = None
        for key in keys:
            block = self._blocks.get(key)
            if block is None or block.parent is not parent:
                break
            blocks.append(block)
            parent = block
        return blocks

    def grown(self, keys: Sequence[BlockKey], start: Sequence[Block] = ()) -> list[Block]:
        """`start` and the blocks of the keys, which follow it; what is new is nobody's yet, and has to be somebody's.

        Raises UsageError for keys that are known to follow something else, and changes nothing then.
        """
        parent, blocks, known = start[-1] if start else None, list(start), 0
        for key in keys:
            block = self._blocks.get(key)
            if block is None:
                break
            if block.parent is not parent:
                raise _torn(block)
            blocks.append(block)
            parent, known = block, known + 1
        for key in keys[known:]:
            block = self._blocks.get(key)
            if block is not None:
                raise _torn(block)
        for key in keys[known:]:
            parent = self._add(key, parent)
            blocks.append(parent)
        return blocks

    def torn(self, keys: Sequence[BlockKey]) -> Block | None:
        """The first of these blocks that is known to follow another one than here; None if there is none."""
        before: Block | None = None
        missing = False
        for key in keys:
            block = self._blocks.get(key)
            if block is not None and (missing or block.parent is not before):
                return block
            before, missing = block, missing or block is None
        return None

    def let_go(self, block: Block, bit: int) -> None:
        """One replica holds it no more, nor anything after it."""
        block.holders &= ~bit
        self._remove_unneeded(block)

    def expect_no_more(self, block: Block, bit: int) -> None:
        """Nothing that one replica was given goes through it any more, nor through anything after it."""
        block.coming &= ~bit
        self._remove_unneeded(block)

    def held_below(self, block: Block, bit: int) -> list[Block]:
        """It and all after it that a replica holds, parents first."""
        found = [block] if block.holders & bit else []
        for each in found:  # grows as it goes
            found.extend(child for child in each.following() if child.holders & bit)
        return found

    def check(self) -> None:
        """Raises BooksError unless every block is somebody's, after a parent of the same, and linked to it."""
        children: dict[BlockKey, int] = {}
        for key, block in self._blocks.items():
            parent = block.parent
            if block.key != key or not block.holders | block.coming:
                raise BooksError(f"a block at depth {block.depth} is filed wrongly, or nobody's")
            if parent is None:
                continue
            if self._blocks.get(parent.key) is not parent:
                raise BooksError(f"what comes before a block at depth {block.depth} is forgotten")
            if block.holders & ~parent.holders or block.coming & ~parent.coming:
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

    def _remove_unneeded(self, block: Block) -> None:
        if block.holders | block.coming:
            return
        del self._blocks[block.key]
        if block.after is not None:
            block.after.before = block.before
        if block.before is not None:
            block.before.after = block.after
        elif block.parent is not None:
            block.parent.first = block.after


def held_of(path: Sequence[Block], bit: int) -> int:
    """How many blocks of a path a replica holds, by halving: it holds a prefix of it."""
    return bisect_left(path, True, key=lambda block: not block.holders & bit)


def at_hand_of(path: Sequence[Block], bit: int) -> int:
    """How many it holds or will hold."""
    return bisect_left(path, True, key=lambda block: not (block.holders | block.coming) & bit)


def _torn(block: Block) -> UsageError:
    return UsageError(
        f"a block that is known at depth {block.depth} was told of after another block than before",
        hint="tell of blocks from the first of their namespace on, or name the block that they follow",
    )
