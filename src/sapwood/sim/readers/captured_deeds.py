"""What else than requests that come is in a capture: what was done between two steps of the engine.

Each says where it stands: `step` calls of `schedule` had been made, `after` requests had been admitted. Old captures do
not say the latter, which is None then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sapwood.sim.readers.source import Row
from sapwood.sim.trace import Names


@dataclass(frozen=True, slots=True)
class CapturedScope:
    """Whose prefixes something is; "" where nothing sets it apart. Tenant and salt are hashes."""

    tenant: str = ""
    adapter: str = ""
    salt: str = ""

    @classmethod
    def of(cls, row: Row) -> CapturedScope:
        return cls(*(str(row.fields.get(name, "")) for name in ("tenant", "adapter", "salt")))

    @property
    def name(self) -> str:
        parts = (self.tenant, self.adapter, self.salt)
        return "/".join(parts) if any(parts) else ""


@dataclass(frozen=True, slots=True)
class Place:
    step: int
    after: int | None = None


@dataclass(frozen=True, slots=True)
class Left:
    """A request was aborted: by whoever asked, or as the server stopped."""

    place: Place
    order: int
    """Of the request, as it was admitted."""


@dataclass(frozen=True, slots=True)
class Flush:
    place: Place


@dataclass(frozen=True, slots=True, eq=False)
class PinTried:
    """A prompt was to be pinned, at that time; whether it is held then."""

    place: Place
    id: str
    scope: CapturedScope
    prompt: Names
    at: float
    held: bool


@dataclass(frozen=True, slots=True)
class Unpin:
    place: Place
    id: str


@dataclass(frozen=True, slots=True, eq=False)
class Publish:
    """These prompts are for all to read from then on."""

    place: Place
    prefixes: tuple[Names, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Limit:
    """So many tokens each tenant may keep."""

    place: Place
    quotas: Mapping[str, int]


Deed: TypeAlias = Left | Flush | PinTried | Unpin | Publish | Limit


def deed_of(row: Row) -> Deed | None:
    """What a line tells that was done; None for one that tells of something else, or of what is not written down.

    Raises UsageError.
    """
    if "flush" in row.fields:
        row.real("flush")  # When it was: `place` says it more exactly.
        return Flush(_place(row))
    if "pin" in row.fields:
        held = row.fields.get("held")
        if not isinstance(held, bool):
            raise row.fault("held", "true or false")
        prompt = row.ids("prompt", row.array("prompt"))
        return PinTried(_place(row), row.text("pin"), CapturedScope.of(row), prompt, row.real("at"), held)
    if "unpin" in row.fields:
        return Unpin(_place(row), row.text("unpin"))
    if "public" in row.fields:
        prefixes = (row.ids("public", each) for each in row.array("public"))
        return Publish(_place(row), tuple(prefixes))
    if "quotas" in row.fields:
        return Limit(_place(row), _quotas(row))
    return None


def _place(row: Row) -> Place:
    return Place(row.whole("step", 0), row.whole("after", 0) if "after" in row.fields else None)


def _quotas(row: Row) -> Mapping[str, int]:
    quotas = row.fields.get("quotas")
    if not isinstance(quotas, dict) or not all(type(most) is int and most >= 0 for most in quotas.values()):
        raise row.fault("quotas", "tokens by tenant")
    return quotas
