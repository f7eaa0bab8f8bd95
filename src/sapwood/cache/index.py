"""What the cache asks of an index: to find prefixes, pin them, take pages and give them up again.

The index knows which pages hold which tokens under which namespace. It frees nothing by itself: pages that it
gives up are returned to the caller. Lengths are in pages here, and only whole pages exist.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from sapwood.cache.check import Claims
from sapwood.cache.keys import Namespace, PageIds, Tokens


class Cursor(Protocol):
    """Where one lease stands in the index. The path up to here is pinned: its pages stay until `unpin`."""

    @property
    def pages(self) -> int:
        """Length of the path in pages."""
        ...

    def table(self) -> PageIds:
        """The page ids of the path, in order."""
        ...

    def extend(self, tokens: Tokens, pages: PageIds) -> PageIds:
        """Offer `pages`, which hold the `tokens` that come next, and move the cursor past them.

        Returns, for each page, the one that holds its tokens from now on: the page offered, or one that held
        the same tokens before and survives (then the offered one is the caller's, to be freed). The answer may
        be `pages` itself; it is empty if the index stores nothing for this cursor, or no more (after a flush).
        len(tokens) == len(pages) · page_size.
        """
        ...

    def unpin(self) -> PageIds:
        """Give up the path; returns the pages that nobody can reach any more (flushed ones)."""
        ...


class PrefixIndex(Protocol):
    """Finds the longest prefix it holds, at page granularity."""

    @property
    def pages(self) -> int:
        """Pages held."""
        ...

    @property
    def leased(self) -> int:
        """Pages held that at least one cursor pins."""
        ...

    def match(self, namespace: Namespace, tokens: Tokens) -> int:
        """Length in pages of the longest prefix held. Changes nothing."""
        ...

    def unpinned(self, namespace: Namespace, tokens: Tokens) -> int:
        """Pages of the longest prefix held that no cursor pins: `pin` would. Changes nothing."""
        ...

    def pin(self, namespace: Namespace, tokens: Tokens) -> Cursor:
        """Pin the longest prefix held and mark it as used."""
        ...

    def evict(self, count: int) -> PageIds:
        """Give up exactly `count` pages that no cursor pins, `count <= pages - leased`."""
        ...

    def flush(self) -> PageIds:
        """Forget everything; returns the pages that no cursor pins. Pinned ones come back from `unpin`."""
        ...

    def check(self, cursors: Iterable[Cursor], claims: Claims) -> None:
        """Prove the index's own books by a full recount, given all live cursors. Raises BooksError."""
        ...
