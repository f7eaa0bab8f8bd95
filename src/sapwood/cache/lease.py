"""The right to read and fill pages until it is released."""

from __future__ import annotations

from sapwood.cache.accounts import Account
from sapwood.cache.index import Cursor
from sapwood.cache.keys import PageIds
from sapwood.cache.runs import IntRun


class Lease:
    """One sequence's page table, and how far along it the cache vouches for the tokens.

        table    [ p0 p1 p2 │ p3 p4 │ p5 p6 ]
                   matched ─┘       │       │    found when the lease began
                   committed ───────┘       │    in the index, pinned: others may read these pages too
                   covered ─────────────────┘    the rest is private: written and read by this lease alone

    All lengths are in tokens and multiples of page_size. Only PrefixCache changes a lease.
    """

    __slots__ = ("_page_size", "_table", "account", "cursor", "live", "matched")

    def __init__(self, cursor: Cursor, page_size: int, account: Account | None = None) -> None:
        self.cursor = cursor
        self.account = account
        """Of its tenant, if that has a quota."""
        self.live = True
        self.matched = cursor.pages * page_size
        self._page_size = page_size
        self._table = IntRun.owning(cursor.table())

    def __repr__(self) -> str:
        state = "lease" if self.live else "released lease"
        return f"{state} of {self.covered} tokens, {self.committed} committed"

    @property
    def table(self) -> PageIds:
        """Page ids for the first `covered` tokens; a view, valid until the cache changes this lease."""
        return self._table.view

    @property
    def covered(self) -> int:
        """Tokens that the table has places for."""
        return self._table.size * self._page_size

    @property
    def committed(self) -> int:
        """Tokens whose pages belong to the index."""
        return self.cursor.pages * self._page_size

    @property
    def private(self) -> PageIds:
        """The pages that belong to this lease alone; a view of the table's end."""
        return self._table.view[self.cursor.pages :]

    def add(self, pages: PageIds) -> None:
        self._table.append(pages)

    def move(self, start: int, pages: PageIds) -> None:
        """From table entry `start` on, read `pages` instead."""
        self._table.view[start : start + len(pages)] = pages

    def cut(self, pages: int) -> PageIds:
        """Keep the first `pages` entries of the table, or all if it has fewer; returns the others."""
        return self._table.cut(max(0, self._table.size - pages))

    def end(self) -> None:
        self.live = False
        self._table.cut(self._table.size)
