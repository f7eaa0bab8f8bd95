"""The numbered pages that are free. Knows nothing of what is in the others."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sapwood.cache.keys import PageIds
from sapwood.errors import BooksError, OutOfPagesError, UsageError


class PagePool:
    """Pages 0 .. capacity-1, handed out and taken back by the array; what is freed last goes out first."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise UsageError(f"the pool has {capacity} pages; it must have at least 1")
        self.capacity = capacity
        self.free_count = capacity
        self._stack = np.arange(capacity - 1, -1, -1, dtype=np.int32)
        self._counted = np.arange(capacity + 1, dtype=np.int32)
        # Of each page its place in the stack, counted from one; zero for those that are handed out.
        self._place = self._counted[:0:-1].copy()

    @property
    def free_pages(self) -> PageIds:
        """Ids of the free pages; a view, the next to be handed out last."""
        return self._stack[: self.free_count]

    def alloc(self, count: int) -> PageIds:
        """Hand out `count` pages. Raises OutOfPagesError, and hands out none, if fewer are free."""
        if count > self.free_count:
            raise OutOfPagesError(f"{count} pages are asked for; {self.free_count} are free")
        left = self.free_count - count
        pages = self._stack[left : self.free_count][::-1].copy()
        self.free_count = left
        self._place[_at(pages)] = 0
        return pages

    def free(self, pages: PageIds) -> None:
        """Take pages back. Raises BooksError, and takes none, if one is unknown, free, named twice or not int32."""
        if len(pages) == 0:
            return
        at = self._require_handed_out(pages)
        start, end = self.free_count, self.free_count + len(pages)
        if end > self.capacity:
            raise BooksError(f"{len(pages)} pages are freed; {self.capacity - start} are handed out")
        places = self._counted[start + 1 : end + 1]
        self._place[at] = places
        twice = self._place.take(at) != places
        if np.count_nonzero(twice):
            self._place[at] = 0
            raise _wrong(pages, twice, "is named twice")
        self._stack[start:end] = pages
        self.free_count = end

    def _require_handed_out(self, pages: PageIds) -> NDArray[np.intp]:
        """The places of these pages in an array of all."""
        if pages.dtype != np.int32:
            raise BooksError(f"page ids are {pages.dtype}; they must be int32")
        at = _at(pages)
        try:
            places = self._place.take(at)
        except IndexError:
            raise _wrong(pages, at >= self.capacity, f"is not one of {self.capacity}") from None
        if np.count_nonzero(places):
            raise _wrong(pages, places > 0, "is free already")
        return at


def _at(pages: PageIds) -> NDArray[np.intp]:
    """As numpy indexes: it takes several times as long with indices of another type, which it converts each time.

    A negative id is a huge one without its sign; numpy would take it as counted from the end.
    """
    return pages.view(np.uint32).astype(np.intp)


def _wrong(pages: PageIds, which: NDArray[np.bool_], what: str) -> BooksError:
    return BooksError(f"page {pages[int(which.argmax())]} cannot be freed: it {what}")
