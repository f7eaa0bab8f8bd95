"""Which namespaces of one tenant were used lately: where else a prompt might have been cached."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import TypeVar

from sapwood.cache.keys import Namespace

_K = TypeVar("_K")
_V = TypeVar("_V")

_PER_TENANT = 16
_TENANTS = 1024


class Siblings:
    """Bounded: the latest namespaces of the latest tenants.

    A tenant's namespaces are never told to another. Nor is one with a salt told to who does not know that salt:
    how far a guess agrees with what is cached there would give it away token by token.
    """

    def __init__(self) -> None:
        self._of: OrderedDict[str | None, OrderedDict[Namespace, None]] = OrderedDict()
        self._latest: Namespace | None = None

    def saw(self, namespace: Namespace) -> None:
        if namespace is self._latest:
            return
        self._latest = namespace
        own = self._of.setdefault(namespace.tenant, OrderedDict())
        own[namespace] = None
        _make_latest(own, namespace, _PER_TENANT)
        _make_latest(self._of, namespace.tenant, _TENANTS)

    def of(self, namespace: Namespace) -> Iterator[Namespace]:
        """The tenant's other namespaces that have no salt, or this one's."""
        own = self._of.get(namespace.tenant, ())
        return (other for other in own if other != namespace and other.salt in (None, "", namespace.salt))


def _make_latest(entries: OrderedDict[_K, _V], key: _K, limit: int) -> None:
    entries.move_to_end(key)
    while len(entries) > limit:
        entries.popitem(last=False)
