"""What the cache asks of an index: to find prefixes, pin them, take pages and give them up again.

The index knows which pages hold which tokens under which namespace. It frees nothing by itself: pages that it
gives up are returned to the caller. Lengths are in pages here, and only whole pages exist.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from sapwood.cache.accounts import Account
from sapwood.cache.check import Claims
from sapwood.cache.keys import Namespace, PageIds, Tokens
from sapwood.cache.retention import Retention


@dataclass(frozen=True, slots=True)
class Trace:
    """All that an index knows of a prompt, with ghosts. Lengths in pages."""

    cached: int
    """Of the longest prefix held: what `match` says."""
    known: int
    """Of the longest prefix held now or once; never shorter than `cached`."""
    branches: bool
    """Whether something else than the tokens asked for is known to follow the known prefix (if it is not empty)."""
    evicted_at: float | None
    """When the first page after `cached` was evicted, if it is known."""


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

    def retain(self, start: int, end: int, retention: Retention) -> None:
        """Ask that pages start .. end-1 of the path be kept longer than others; a stronger wish stands.

        Raises UsageError if the index has no such order.
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

    def trace(self, namespace: Namespace, tokens: Tokens) -> Trace:
        """Why a prefix is not longer: what was held once, and what was followed by something else. Changes nothing."""
        ...

    def continuation(self, namespace: Namespace, tokens: Tokens, limit: int) -> Tokens:
        """At most `limit` tokens that are known to follow all of these, whole pages or not. Changes nothing."""
        ...

    def unpinned(self, namespace: Namespace, tokens: Tokens) -> int:
        """Pages of the longest prefix held that no cursor pins: `pin` would. Changes nothing."""
        ...

    def pin(self, namespace: Namespace, tokens: Tokens) -> Cursor:
        """Pin the longest prefix held and mark it as used."""
        ...

    def evict(self, count: int, account: Account | None = None) -> PageIds:
        """Give up exactly `count` pages that no cursor pins, `count <= pages - leased`; of one account, or of all."""
        ...

    def advance(self, now: float) -> None:
        """It is now `now`, in seconds of the caller's clock, which only rises."""
        ...

    def flush(self) -> PageIds:
        """Forget everything, ghosts too; returns the pages that no cursor pins. Pinned ones come back from `unpin`."""
        ...

    def check(self, cursors: Iterable[Cursor], claims: Claims) -> None:
        """Prove the index's own books by a full recount, given all live cursors. Raises BooksError."""
        ...
