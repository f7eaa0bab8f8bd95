"""Cached contents: what a tenant has named to be in front of its prompts, kept until it expires.

Kept are the conversation and its tokens, not what was computed of them: whatever the KV cache evicts is computed
again, and still billed as cached. So an object never leaves before its time to make room; what finds no room is
refused. A tenant may hold half of what the others leave, so there is always some for one more.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sapwood.chat.gemini_prefix import CachedPrefix
from sapwood.chat.tools import ToolUse
from sapwood.server.gemini_wire import CachedContentGoneError, CachedContentsFullError

ROOM = 256 * 2**20
"""Bytes, about, of all objects together."""

_OWN_BYTES = 1024
_TOKEN_BYTES = 40


@dataclass(frozen=True, slots=True)
class NewContent:
    """Attributes:
    use: how answers may call the object's tools.
    """

    model: str
    display_name: str
    prefix: CachedPrefix
    use: ToolUse | None

    @property
    def tokens(self) -> int:
        return len(self.prefix.tokens)

    @property
    def cost(self) -> int:
        """Bytes, about: of the text twice, as it came and as it was rendered, and of the tokens."""
        return _OWN_BYTES + 2 * self.prefix.conversation.size + _TOKEN_BYTES * self.tokens


@dataclass(frozen=True, slots=True)
class CachedContent:
    """An object. Times in seconds since 1970; `number` orders those of one tenant."""

    id: str
    number: int
    content: NewContent
    created: float
    updated: float
    expires: float


@dataclass(slots=True)
class _Shelf:
    """One tenant's objects, in the order in which they were made."""

    objects: dict[str, CachedContent] = field(default_factory=dict)
    made: int = 0
    cost: int = 0


@dataclass(frozen=True, slots=True)
class Page:
    """Some objects, and the number after which the next page goes on, if there is one."""

    objects: tuple[CachedContent, ...]
    next: int | None


class CachedContents:
    """All tenants' objects. For any thread."""

    def __init__(
        self, clock: Callable[[], float], wall: Callable[[], float] = time.time, room: int = ROOM
    ) -> None:
        """`clock` counts seconds, from anywhere; `wall` those since 1970."""
        self._clock, self._wall, self._room = clock, wall, room
        self._start = wall() - clock()
        self._shelves: dict[str, _Shelf] = {}
        self._lock = threading.Lock()

    def now(self) -> float:
        """Seconds since 1970, by the clock that is ahead: one of them may stand still while a machine sleeps."""
        return max(self._start + self._clock(), self._wall())

    def check_room(self, tenant: str, content: NewContent) -> None:
        """Raises CachedContentsFullError where `add` would."""
        with self._lock:
            self._make_room(tenant, content.cost)

    def add(self, tenant: str, content: NewContent, lifetime: Callable[[float], float]) -> CachedContent:
        """Keeps an object; `lifetime` says when one that is made now expires. Raises CachedContentsFullError."""
        now = self.now()
        expires = lifetime(now)
        with self._lock:
            self._make_room(tenant, content.cost)
            shelf = self._shelves.setdefault(tenant, _Shelf())
            shelf.made += 1
            made = CachedContent(secrets.token_hex(12), shelf.made, content, now, now, expires)
            shelf.objects[made.id] = made
            shelf.cost += content.cost
            return made

    def get(self, tenant: str, id: str) -> CachedContent:
        """Raises CachedContentGoneError for one that the tenant has not, or not any more."""
        with self._lock:
            return self._live(tenant, id)

    def page(self, tenant: str, size: int, after: int) -> Page:
        """At most `size` objects, those made first before, with numbers above `after`."""
        with self._lock:
            shelf = self._swept(tenant)
            left = [each for each in shelf.objects.values() if each.number > after]
            return Page(tuple(left[:size]), left[size - 1].number if len(left) > size else None)

    def renew(self, tenant: str, id: str, lifetime: Callable[[float], float]) -> CachedContent:
        """Sets when an object expires. Raises CachedContentGoneError."""
        now = self.now()
        expires = lifetime(now)
        with self._lock:
            renewed = replace(self._live(tenant, id), updated=now, expires=expires)
            self._shelves[tenant].objects[id] = renewed
            return renewed

    def delete(self, tenant: str, id: str) -> None:
        """Raises CachedContentGoneError."""
        with self._lock:
            gone = self._live(tenant, id)
            shelf = self._shelves[tenant]
            del shelf.objects[id]
            shelf.cost -= gone.content.cost

    def _live(self, tenant: str, id: str) -> CachedContent:
        found = self._swept(tenant).objects.get(id)
        if found is None:
            raise CachedContentGoneError
        return found

    def _swept(self, tenant: str) -> _Shelf:
        """The tenant's shelf without what has expired."""
        shelf, now = self._shelves.get(tenant, _Shelf()), self.now()
        for each in [each for each in shelf.objects.values() if each.expires <= now]:
            del shelf.objects[each.id]
            shelf.cost -= each.content.cost
        return shelf

    def _make_room(self, tenant: str, cost: int) -> None:
        costs = {name: self._swept(name).cost for name in self._shelves}
        own = costs.pop(tenant, 0)
        if own + cost > (self._room - sum(costs.values())) // 2:
            raise CachedContentsFullError
