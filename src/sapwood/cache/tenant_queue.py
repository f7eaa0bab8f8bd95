"""The free queue of all blocks, and that of each tenant with a quota among its own."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection

from sapwood.cache.accounts import Account
from sapwood.cache.block import Block
from sapwood.cache.free_queue import FreeQueue
from sapwood.errors import BooksError


class TenantQueue(FreeQueue):
    """Blocks without an account cost nothing more. A tenant's blocks come in the same order in both queues."""

    def __init__(self) -> None:
        super().__init__()
        self._own: dict[Account, OrderedDict[Block, None]] = {}

    def append(self, block: Block) -> None:
        super().append(block)
        if block.account is not None:
            self._own.setdefault(block.account, OrderedDict())[block] = None

    def remove(self, block: Block) -> None:
        super().remove(block)
        if block.account is not None:
            del self._own[block.account][block]

    def pop_of(self, account: Account) -> Block:
        """Take out the first of a tenant's blocks. Raises BooksError if there is none."""
        own = self._own.get(account)
        if not own:
            raise BooksError(f"a block of {account.tenant} is to be evicted and none is free")
        block = next(iter(own))
        self.remove(block)
        return block

    def check(self, expected: Collection[Block]) -> None:
        super().check(expected)
        for account, own in self._own.items():
            if list(own) != [block for block in self if block.account is account]:
                raise BooksError(f"the free queue of {account.tenant} is not a part of that of all")
