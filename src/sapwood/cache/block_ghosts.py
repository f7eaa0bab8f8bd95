"""What the hash index remembers beyond the blocks it holds: enough to explain a miss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from sapwood.cache.block import Block, hash_before
from sapwood.cache.chain import ChainHash
from sapwood.errors import BooksError

GHOSTS_PER_BLOCK = 4
"""Ghosts kept for each block of the most that were ever held, unless a number is given."""


@dataclass(frozen=True, slots=True)
class Ghost:
    evicted_at: float
    """In seconds of the caller's clock."""
    parent: ChainHash | None
    """Hash of the block before; None for the first of a prefix."""


class BlockGhosts:
    """Ghosts of evicted blocks, the oldest forgotten first, and how many known pages follow each known page.

    A page is known while it is held or has a ghost. A block is evicted after all that follow it, so its ghost
    is younger than theirs and outlives them: what is known of a prompt is always a prefix of it.
    """

    def __init__(self, bound: int | None = None) -> None:
        self._given = bound
        self._bound = bound or 0
        self._ghosts: dict[ChainHash, Ghost] = {}
        self._followers: dict[ChainHash, int] = {}

    def __len__(self) -> int:
        return len(self._ghosts)

    def get(self, chained: ChainHash) -> Ghost | None:
        return self._ghosts.get(chained)

    def followers(self, chained: ChainHash) -> int:
        """Known pages that come right after this one; first pages are not counted as following anything."""
        return self._followers.get(chained, 0)

    def held(self, block: Block) -> None:
        """A block came in: it is no ghost any more, if it was one."""
        self._forget(block.hash)
        self._count(hash_before(block), 1)

    def evicted(self, block: Block, now: float, *, keep: bool) -> None:
        """A block went; `keep` its ghost, unless another block is found under the same hash."""
        if not keep:
            self._count(hash_before(block), -1)
            return
        self._ghosts[block.hash] = Ghost(now, hash_before(block))
        while len(self._ghosts) > self._bound:
            self._forget(next(iter(self._ghosts)))

    def follow(self, blocks: int) -> None:
        """So many blocks are held now; without a number given, the bound follows the most there ever were."""
        if self._given is None:
            self._bound = max(self._bound, GHOSTS_PER_BLOCK * blocks)

    def clear(self) -> None:
        self._ghosts.clear()
        self._followers.clear()

    def check(self, blocks: Iterable[Block], now: float) -> None:
        """Raises BooksError unless the ghosts are few, in order and of none of the `blocks`, which are all held."""
        if len(self._ghosts) > self._bound:
            raise BooksError(f"{len(self._ghosts)} ghosts are kept, at most {self._bound} may be")
        before: list[ChainHash | None] = [ghost.parent for ghost in self._ghosts.values()]
        for block in blocks:
            if block.hash in self._ghosts:
                raise BooksError(f"{block} is held and has a ghost")
            before.append(hash_before(block))
        followers = Counter(chained for chained in before if chained is not None)
        if followers != self._followers:
            raise BooksError("the pages known to follow some page are not as many as a recount gives")
        ages = [ghost.evicted_at for ghost in self._ghosts.values()]
        if sorted([*ages, now]) != [*ages, now]:
            raise BooksError("the ghosts are not in the order in which they were evicted")

    def _forget(self, chained: ChainHash) -> None:
        ghost = self._ghosts.pop(chained, None)
        if ghost is not None:
            self._count(ghost.parent, -1)

    def _count(self, chained: ChainHash | None, change: int) -> None:
        if chained is None:
            return
        count = self._followers.get(chained, 0) + change
        if count:
            self._followers[chained] = count
        else:
            del self._followers[chained]
