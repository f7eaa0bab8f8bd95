"""Proof of the hash index's books: every block recounted, hashed and looked up again. Believes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from sapwood.cache.accounts import Account, Accounts
from sapwood.cache.block import Block, Parent
from sapwood.cache.block_map import BlockMap
from sapwood.cache.chain import ChainHash
from sapwood.cache.check import Claims
from sapwood.cache.keys import Namespace
from sapwood.errors import BooksError


class PinnedPath(Protocol):
    @property
    def namespace(self) -> Namespace: ...
    @property
    def end(self) -> Parent: ...
    @property
    def pages(self) -> int: ...


@dataclass(slots=True)
class BlockCount:
    """What a recount gave."""

    pages: int = 0
    leased: int = 0
    pages_of: Counter[Account] = field(default_factory=Counter)
    leased_of: Counter[Account] = field(default_factory=Counter)
    free: list[Block] = field(default_factory=list)
    """Blocks that can be found and that nobody pins."""


def check_blocks(
    held: BlockMap,
    current: Iterable[PinnedPath],
    stale: Iterable[PinnedPath],
    name_of: Callable[[Block], ChainHash],
    accounts: Accounts,
    claims: Claims,
) -> BlockCount:
    """Claim all pages, compare each block with its hash, its place in the map, its parent and the cursors.

    current: cursors whose blocks must be found; stale: those from before a flush, whose blocks must not be.
    """
    found = _found(held, name_of)
    pins, flushed = _pinned(current), _pinned(stale)
    for block in found.values():
        above = block.parent
        _require(
            not isinstance(above, Block) or id(above) in found, block, "follows one that cannot be found"
        )
    for block in pins.blocks.values():
        _require(id(block) in found, block, "is pinned and cannot be found")
    for block in flushed.blocks.values():
        _require(id(block) not in found, block, "was flushed and can be found")
    count = BlockCount()
    for block in [*found.values(), *flushed.blocks.values()]:
        is_so = pins.counts[id(block)] + flushed.counts[id(block)]
        _require(block.pins == is_so, block, f"is in the paths of {is_so} cursors")
        claims.claim(np.array([block.page], dtype=np.int32), block)
        count.pages += 1
        count.leased += is_so > 0
        above = block.parent
        account = above.account if isinstance(above, Block) else accounts.of(above)
        _require(block.account is account, block, "has another account than its tenant")
        if account is not None:
            count.pages_of[account] += 1
            count.leased_of[account] += is_so > 0
        if is_so == 0:
            count.free.append(block)
    return count


@dataclass(slots=True)
class _Pins:
    counts: Counter[int] = field(default_factory=Counter)
    blocks: dict[int, Block] = field(default_factory=dict)


def _pinned(cursors: Iterable[PinnedPath]) -> _Pins:
    pins = _Pins()
    for cursor in cursors:
        for block in _path(cursor):
            pins.counts[id(block)] += 1
            pins.blocks[id(block)] = block
    return pins


def _path(cursor: PinnedPath) -> Sequence[Block]:
    """The blocks of a path, followed no further than the cursor says it goes."""
    path: list[Block] = []
    block = cursor.end
    while isinstance(block, Block) and len(path) <= cursor.pages:
        path.append(block)
        block = block.parent
    _require(len(path) == cursor.pages, "a cursor", f"counts {cursor.pages} pages of another path")
    _require(block == cursor.namespace, "a cursor", f"of {cursor.namespace} stands in {block}")
    return path


def _found(held: BlockMap, name_of: Callable[[Block], ChainHash]) -> dict[int, Block]:
    """All blocks that can be found, each under its own hash and no two with the same prefix."""
    found: dict[int, Block] = {}
    for chained in held.filed():
        for block in held.alike(chained):
            _require(id(block) not in found, block, "is filed twice")
            found[id(block)] = block
            _require(block.hash == chained, block, "is filed under the hash of another")
            _require(block.filed, block, "can be found and says that it cannot")
            _require(block.hash == name_of(block), block, "has the hash of other tokens or another parent")
            same = held.find(block.hash, block.parent, block.content)
            _require(same is block, block, "is held twice")
    return found


def _require(holds: bool, who: object, wrong: str) -> None:
    if not holds:
        raise BooksError(f"{who} {wrong}")
