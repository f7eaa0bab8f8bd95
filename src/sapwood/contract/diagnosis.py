"""Why a request read less than an earlier one had left behind: hashes and counts of answered requests, kept briefly."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sapwood.contract.block import LEVELS, Block
from sapwood.contract.prefix_keys import digest


@dataclass(frozen=True, slots=True)
class Imprint:
    """What is kept of a request, and compared with a later one; no text and no tokens.

    Attributes:
        parts: a hash of each thing that must be equal, by its name, in the order in which they are compared: what
            the caller adds (the model, say), then each level but the last.
        grown: the last level's hash after each of its blocks, for it may have grown.
    """

    parts: Mapping[str, bytes]
    grown: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """Attributes:
    changed: the first thing that differs: a name of `Imprint.parts`, or `messages`. None where nothing does, so
        that the cause is another (an entry expired, a marker too far away).
    reusable: tokens that the earlier request had left.
    missed: of these, how many were not read.
    """

    changed: str | None
    reusable: int
    missed: int


@dataclass(frozen=True, slots=True)
class _Answered:
    parts: Mapping[str, bytes]
    last: bytes
    reusable: int


def imprint(
    tokens: Sequence[int], blocks: Sequence[Block], settings: Mapping[str, str], first: Mapping[str, str]
) -> Imprint:
    """Of a prompt; `tokens`, `blocks` and `settings` as for `Ledger.plan`, `first` are things to compare before."""
    ids = np.asarray(tokens, dtype=np.int32)
    parts = {name: digest(value.encode("utf-8", "surrogatepass")) for name, value in first.items()}
    hashes = {level: tuple(_grow(ids, blocks, level, settings.get(level, ""))) for level in LEVELS}
    parts |= {level: hashes[level][-1] for level in LEVELS[:-1]}
    return Imprint(parts, hashes[LEVELS[-1]])


def _grow(ids: NDArray[np.int32], blocks: Sequence[Block], level: str, setting: str) -> Iterator[bytes]:
    """The hash of a level's settings, then again after each of its blocks."""
    hashed = digest(setting.encode("utf-8", "surrogatepass"))
    yield hashed
    at = 0
    for block in blocks:
        if block.level == level:
            hashed = digest(hashed + ids[at : block.end].tobytes())
            yield hashed
        at = block.end


class Diagnoses:
    """Of the requests answered last, `most` of each tenant and of `tenants` tenants. For one thread."""

    def __init__(self, most: int = 1024, tenants: int = 256) -> None:
        self._most, self._tenants = most, tenants
        self._answered: OrderedDict[str, OrderedDict[str, _Answered]] = OrderedDict()

    def note(self, tenant: str, id: str, imprint: Imprint, reusable: int) -> None:
        """A request was answered; `reusable` tokens of its prompt are promised to the next one: read or written."""
        kept = self._answered.setdefault(tenant, OrderedDict())
        self._answered.move_to_end(tenant)
        kept[id] = _Answered(imprint.parts, imprint.grown[-1], reusable)
        kept.move_to_end(id)
        if len(kept) > self._most:
            kept.popitem(last=False)
        if len(self._answered) > self._tenants:
            self._answered.popitem(last=False)

    def knows(self, tenant: str, id: str) -> bool:
        """Whether this tenant's request `id` is still remembered."""
        return id in self._answered.get(tenant, ())

    def compare(self, tenant: str, previous: str, imprint: Imprint, read: int) -> Finding | None:
        """Why this request `read` less than request `previous` had left; None if it read it all.

        Raises KeyError where `previous` is not known to this tenant.
        """
        before = self._answered.get(tenant, OrderedDict())[previous]
        missed = before.reusable - read
        if missed <= 0:
            return None
        for name, value in before.parts.items():
            if imprint.parts.get(name) != value:
                return Finding(name, before.reusable, missed)
        grew = before.last in imprint.grown
        return Finding(None if grew else LEVELS[-1], before.reusable, missed)
