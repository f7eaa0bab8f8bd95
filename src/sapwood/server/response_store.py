"""Responses that clients may ask for again, or go on from. No tenant finds another's."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from sapwood.chat import Json
from sapwood.errors import NotFoundError

KEPT = 1024
"""Responses of one tenant."""
KEPT_BYTES = 64 * 2**20
"""Bytes (of JSON) of one tenant's responses."""
KEPT_BYTES_OF_ALL = 512 * 2**20
"""Bytes (of JSON) of all responses."""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """Attributes:
    response: as it was answered.
    items: all that it was made from, the newest last.
    items_size: of these, see `size_of`.
    """

    response: Json
    items: tuple[Json, ...]
    items_size: int

    @property
    def history(self) -> tuple[Json, ...]:
        """What a response that goes on from here begins with. Instructions are no part of it."""
        return (*self.items, *self.response["output"])


def size_of(value: object) -> int:
    """Bytes of JSON."""
    return len(json.dumps(value, ensure_ascii=False).encode())


@dataclass(slots=True)
class _Shelf:
    """One tenant's, the latest used last, with their sizes."""

    kept: OrderedDict[str, StoredResponse] = field(default_factory=OrderedDict)
    sizes: dict[str, int] = field(default_factory=dict)
    total: int = 0

    def drop(self, id: str) -> None:
        del self.kept[id]
        self.total -= self.sizes.pop(id)


class ResponseStore:
    """Forgets a tenant's least recently used. For any thread.

    A shelf for each tenant, so that how soon a response is forgotten tells nothing of what others ask; only when
    many tenants fill theirs, whoever has the most gives. Items that several responses share are counted for each.
    """

    def __init__(
        self, kept: int = KEPT, kept_bytes: int = KEPT_BYTES, of_all: int = KEPT_BYTES_OF_ALL
    ) -> None:
        self._kept, self._kept_bytes, self._of_all = kept, kept_bytes, of_all
        self._shelves: dict[str, _Shelf] = {}
        self._lock = threading.Lock()

    def keep(self, tenant: str, stored: StoredResponse) -> None:
        """One that is larger than a whole shelf is not kept."""
        size = stored.items_size + size_of(stored.response)
        id = str(stored.response["id"])
        with self._lock:
            shelf = self._shelves.setdefault(tenant, _Shelf())
            if id in shelf.kept:
                shelf.drop(id)
            if size > self._kept_bytes:
                return
            shelf.kept[id], shelf.sizes[id] = stored, size
            shelf.total += size
            while len(shelf.kept) > self._kept or shelf.total > self._kept_bytes:
                shelf.drop(next(iter(shelf.kept)))
            while sum(each.total for each in self._shelves.values()) > self._of_all:
                most = max(self._shelves.values(), key=lambda each: each.total)
                most.drop(next(iter(most.kept)))

    def find(self, tenant: str, id: str) -> StoredResponse:
        """Raises NotFoundError for one that this tenant does not have."""
        with self._lock:
            shelf = self._shelf(tenant, id)
            shelf.kept.move_to_end(id)
            return shelf.kept[id]

    def delete(self, tenant: str, id: str) -> None:
        """Raises NotFoundError for one that this tenant does not have."""
        with self._lock:
            self._shelf(tenant, id).drop(id)

    def _shelf(self, tenant: str, id: str) -> _Shelf:
        shelf = self._shelves.get(tenant)
        if shelf is None or id not in shelf.kept:
            raise NotFoundError(
                f"there is no response {id[:100]!r}",
                param="response_id",
                code="response_not_found",
                hint="it was sent with store = false, deleted, or forgotten as one of the oldest",
            )
        return shelf
