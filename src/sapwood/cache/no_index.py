"""The index that remembers nothing: `prefix_index="none"`."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sapwood.cache.accounts import Account
from sapwood.cache.check import Claims
from sapwood.cache.index import Cursor, Trace
from sapwood.cache.keys import Namespace, PageIds, Tokens
from sapwood.cache.retention import Retention
from sapwood.errors import BooksError


def _no_pages() -> PageIds:
    return np.empty(0, dtype=np.int32)


class NoCursor:
    """A cursor that never moves."""

    __slots__ = ()

    @property
    def pages(self) -> int:
        return 0

    def table(self) -> PageIds:
        return _no_pages()

    def extend(self, tokens: Tokens, pages: PageIds) -> PageIds:  # noqa: ARG002
        return pages[:0]

    def retain(self, start: int, end: int, retention: Retention) -> None:
        """Nothing is kept, however much one asks."""

    def unpin(self) -> PageIds:
        return _no_pages()


class NoIndex:
    """Finds nothing and takes nothing, so every page stays private to its lease."""

    pages = 0
    leased = 0

    def match(self, namespace: Namespace, tokens: Tokens) -> int:  # noqa: ARG002
        return 0

    def trace(self, namespace: Namespace, tokens: Tokens) -> Trace:  # noqa: ARG002
        return Trace(0, 0, branches=False, evicted_at=None)

    def continuation(self, namespace: Namespace, tokens: Tokens, limit: int) -> Tokens:  # noqa: ARG002
        return tokens[:0]

    def advance(self, now: float) -> None:
        """No time passes where nothing is remembered."""

    def unpinned(self, namespace: Namespace, tokens: Tokens) -> int:  # noqa: ARG002
        return 0

    def pin(self, namespace: Namespace, tokens: Tokens) -> Cursor:  # noqa: ARG002
        return NoCursor()

    def evict(self, count: int, account: Account | None = None) -> PageIds:  # noqa: ARG002
        if count > 0:
            raise BooksError(f"{count} pages are to be evicted from an index that holds none")
        return _no_pages()

    def flush(self) -> PageIds:
        return _no_pages()

    def check(self, cursors: Iterable[Cursor], claims: Claims) -> None:
        """Nothing is held, so nothing can be wrong."""
