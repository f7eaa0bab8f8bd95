"""One full page that can be found by its chained hash."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from sapwood.cache.accounts import Account
from sapwood.cache.chain import ChainHash
from sapwood.cache.keys import Namespace

_SHOWN_TOKENS = 6


class Block:
    """The tokens of one page, the page that holds their KV, and what comes before.

    `pins` counts the leases whose path goes through this block. Every such path goes through `parent` too.
    """

    __slots__ = (
        "account",
        "after",
        "alike",
        "before",
        "content",
        "filed",
        "follower",
        "hash",
        "page",
        "parent",
        "pins",
    )

    def __init__(
        self, page: int, chained: ChainHash, parent: Parent, content: bytes, account: Account | None = None
    ) -> None:
        self.page = page
        self.hash = chained
        self.parent = parent
        self.content = content
        """The bytes of page_size int32 tokens."""
        self.account = account
        """Of its tenant, if that has a quota."""
        self.pins = 0
        self.filed = False
        """Whether it can be found."""
        self.before: Block | None = None
        """The neighbours in the free queue; None at its ends, and outside it."""
        self.after: Block | None = None
        self.follower: Block | None = None
        """What was pinned last of the blocks that follow, while it is held: what may well come next again."""
        self.alike: Block | None = None
        """The next block whose hash is the same by chance."""

    def __repr__(self) -> str:
        tokens = np.frombuffer(self.content, dtype=np.int32)
        shown = " ".join(str(token) for token in tokens[:_SHOWN_TOKENS])
        more = " …" if len(tokens) > _SHOWN_TOKENS else ""
        return f"block [{shown}{more}] on page {self.page}, {self.pins} pins"


Parent: TypeAlias = Block | Namespace
"""The block before, compared by identity; before the first block the namespace, compared by its fields."""


def hash_before(block: Block) -> ChainHash | None:
    """Hash of the block before; None for the first one."""
    return block.parent.hash if isinstance(block.parent, Block) else None
