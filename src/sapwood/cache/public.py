"""Public prefixes: what an operator gives to all tenants to read, while what follows stays each tenant's own.

    public path    [ p0 p1 p2 … pn ]        leased for good, under no tenant's name
                          └─▶ namespace (tenant, salt, "left the path after 3 pages") ──▶ the tenant's own pages

A lookup walks along a public path as far as the tokens agree, in whole pages, and goes on in a namespace of its own
for each tenant and each place where a path is left. So the index below never sees a tenant's tokens next to
another's, its books and its order of eviction are those of any other namespaces, and no match goes on from the
public path into what is somebody else's. How far a prompt follows a path is known from its tokens alone, as the
paths never change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sapwood.cache.accounts import Account
from sapwood.cache.check import Claims
from sapwood.cache.index import Cursor, PrefixIndex, Trace
from sapwood.cache.keys import Namespace, PageIds, Tokens, common_prefix
from sapwood.cache.lease import Lease
from sapwood.cache.retention import Retention
from sapwood.errors import BooksError


@dataclass(frozen=True, slots=True, eq=False)
class PublicPath:
    """One public prefix, in whole pages, and the lease that keeps it."""

    number: int
    tokens: Tokens
    lease: Lease
    pages: PageIds


@dataclass(frozen=True, slots=True)
class _Place:
    """How far some tokens go along a public path."""

    path: PublicPath
    pages: int
    rest: Tokens
    """What is left of the tokens."""


class PublicCursor:
    """Stands on a public path, `passed` pages along it, or in the tenant's own namespace behind it.

    It stays on the path while all its tokens agree with one: what comes next decides where it leaves.
    """

    __slots__ = ("_index", "epoch", "namespace", "own", "passed", "path")

    def __init__(self, index: PublicIndex, namespace: Namespace, place: _Place, epoch: int) -> None:
        self._index = index
        self.namespace = namespace
        self.path, self.passed = place.path, place.pages
        self.epoch = epoch
        """Flushes before this cursor began."""
        self.own: Cursor | None = None
        """Where it stands once it has left the path."""

    @property
    def pages(self) -> int:
        return self.passed + (0 if self.own is None else self.own.pages)

    def table(self) -> PageIds:
        head = self.path.pages[: self.passed]
        return head.copy() if self.own is None else np.concatenate([head, self.own.table()])

    def extend(self, tokens: Tokens, pages: PageIds) -> PageIds:
        return self._index.extend(self, tokens, pages)

    def retain(self, start: int, end: int, retention: Retention) -> None:
        """The path is kept in any case."""
        if self.own is not None and end > self.passed:
            self.own.retain(max(0, start - self.passed), end - self.passed, retention)

    def unpin(self) -> PageIds:
        freed = np.empty(0, dtype=np.int32) if self.own is None else self.own.unpin()
        self.own, self.passed = None, 0
        return freed


class PublicIndex:
    """Implements PrefixIndex for all tenants over the index that holds everything.

    shared: namespaces with its fingerprint and adapter read the public paths; others cannot use their KV.
    """

    def __init__(
        self, below: PrefixIndex, page_size: int, shared: Namespace, paths: Sequence[PublicPath]
    ) -> None:
        self.below = below
        self._page_size = page_size
        self._shared = shared
        self._paths = tuple(paths)
        self._epoch = 0

    @property
    def pages(self) -> int:
        return self.below.pages

    @property
    def leased(self) -> int:
        return self.below.leased

    def match(self, namespace: Namespace, tokens: Tokens) -> int:
        place = self._place(namespace, tokens)
        return place.pages + self.below.match(self._behind(namespace, place), place.rest)

    def trace(self, namespace: Namespace, tokens: Tokens) -> Trace:
        place = self._place(namespace, tokens)
        own = self.below.trace(self._behind(namespace, place), place.rest)
        left_early = 0 < place.pages < len(place.path.pages)
        branches = own.branches or (own.known == 0 and left_early)
        return Trace(place.pages + own.cached, place.pages + own.known, branches, own.evicted_at)

    def continuation(self, namespace: Namespace, tokens: Tokens, limit: int) -> Tokens:
        """The tenant's own if there is any, else along the path, which is everybody's."""
        place = self._place(namespace, tokens)
        own = self.below.continuation(self._behind(namespace, place), place.rest, limit)
        ahead = place.path.tokens[place.pages * self._page_size :]
        if len(own) or not place.pages or not np.array_equal(ahead[: len(place.rest)], place.rest):
            return own
        return ahead[len(place.rest) :][:limit]

    def unpinned(self, namespace: Namespace, tokens: Tokens) -> int:
        place = self._place(namespace, tokens)
        return self.below.unpinned(self._behind(namespace, place), place.rest)

    def pin(self, namespace: Namespace, tokens: Tokens) -> Cursor:
        if not self._reads(namespace):
            return self.below.pin(namespace, tokens)
        place = self._place(namespace, tokens)
        cursor = PublicCursor(self, namespace, place, self._epoch)
        if len(place.rest) >= self._page_size:
            cursor.own = self.below.pin(self._behind(namespace, place), place.rest)
        return cursor

    def extend(self, cursor: PublicCursor, tokens: Tokens, pages: PageIds) -> PageIds:
        """Go on along the path, or leave it. See Cursor.extend."""
        if cursor.own is not None:
            return cursor.own.extend(tokens, pages)
        if cursor.epoch != self._epoch:
            return pages[:0]
        before = cursor.passed
        place = self._place(cursor.namespace, np.concatenate([self._walked(cursor), tokens]))
        cursor.path, cursor.passed = place.path, place.pages
        kept = place.path.pages[before : place.pages]
        if len(kept) == len(pages):
            return kept.copy()
        cursor.own = self.below.pin(self._behind(cursor.namespace, place), place.rest[:0])
        own = cursor.own.extend(place.rest, pages[len(kept) :])
        return np.concatenate([kept, own]) if len(kept) else own

    def evict(self, count: int, account: Account | None = None) -> PageIds:
        return self.below.evict(count, account)

    def advance(self, now: float) -> None:
        self.below.advance(now)

    def flush(self) -> PageIds:
        """The public paths stay: their leases hold them, and who finds them does not look below."""
        self._epoch += 1
        return self.below.flush()

    def check(self, cursors: Iterable[Cursor], claims: Claims) -> None:
        below: list[Cursor] = []
        for cursor in cursors:
            if not isinstance(cursor, PublicCursor):
                below.append(cursor)
                continue
            if not 0 <= cursor.passed <= len(cursor.path.pages) or cursor.path not in self._paths:
                raise BooksError(
                    f"a cursor stands {cursor.passed} pages along a public path that has no such place"
                )
            if cursor.own is not None:
                below.append(cursor.own)
        for path in self._paths:
            if not path.lease.live or not np.array_equal(path.lease.table, path.pages):
                raise BooksError(f"public path {path.number} is not what its lease holds")
        self.below.check(below, claims)

    def _reads(self, namespace: Namespace) -> bool:
        shared = self._shared
        return (namespace.fingerprint, namespace.adapter) == (shared.fingerprint, shared.adapter)

    def _place(self, namespace: Namespace, tokens: Tokens) -> _Place:
        """Along the path that agrees longest; of equals the first, so that equal tokens always leave at one place."""
        best, longest = self._paths[0], 0
        for path in self._paths if self._reads(namespace) else ():
            agreed = common_prefix(path.tokens, tokens) // self._page_size
            if agreed > longest:
                best, longest = path, agreed
        return _Place(best, longest, tokens[longest * self._page_size :])

    def _behind(self, namespace: Namespace, place: _Place) -> Namespace:
        """The tenant's own namespace for what follows where the path is left."""
        if not place.pages:
            return namespace
        return replace(namespace, public=f"{place.path.number}:{place.pages}")

    def _walked(self, cursor: PublicCursor) -> Tokens:
        return cursor.path.tokens[: cursor.passed * self._page_size]
