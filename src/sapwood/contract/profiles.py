"""Every number of the providers' prompt caching. They change monthly: nothing else in here may know one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

from sapwood.errors import RequestError

_MINUTE = 60.0
_HOUR = 60 * _MINUTE


@dataclass(frozen=True, slots=True)
class Ttl:
    """A time-to-live as clients write it."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Markers:
    """The client marks blocks; what ends at a mark is written, and found again from marks shortly after it.

    Attributes:
        minimum: shorter prefixes are silently not cached (512, 1024, 2048 or 4096, by model).
        most: markers in a request, an automatic one included.
        lookback: block positions that a marker looks at, its own included.
        ttls: those that may be asked for.
        default_ttl: for a marker that names none.
    """

    minimum: int = 1024
    most: int = 4
    lookback: int = 20
    ttls: tuple[Ttl, ...] = (Ttl("5m", 5 * _MINUTE), Ttl("1h", _HOUR))
    default_ttl: str = "5m"


@dataclass(frozen=True, slots=True)
class Breakpoints:
    """Boundaries that the client, the rules or both set; what lies between two of them is never reused.

    Attributes:
        minimum: shorter prefixes are silently not cached.
        written: boundaries that a request writes, the implicit one included.
        first, latest: of the client's boundaries, which are looked up.
        message_ends: in implicit mode, message ends before the implicit boundary that are looked up too.
        ttls: those that may be asked for.
        default_ttl: where none is.
    """

    minimum: int = 1024
    written: int = 4
    first: int = 2
    latest: int = 80
    message_ends: int = 20
    ttls: tuple[Ttl, ...] = (Ttl("30m", 30 * _MINUTE), Ttl("12h", 12 * _HOUR))
    default_ttl: str = "30m"


@dataclass(frozen=True, slots=True)
class Steps:
    """Everything is cached by itself, in steps of so many tokens; writing costs nothing.

    Attributes:
        minimum: the first step.
        step: tokens from one to the next.
        idle: seconds without use after which a prefix is dropped.
        longest: seconds after which it is dropped, used or not.
        ttls: retention that may be asked for: seconds without use, and in all.
    """

    minimum: int
    step: int
    idle: float
    longest: float = math.inf
    ttls: tuple[Ttl, ...] = ()


@dataclass(frozen=True, slots=True)
class Implicit:
    """Whatever the server happens to have is told, from a minimum on."""

    minimum: int = 1024


@dataclass(frozen=True, slots=True)
class Explicit:
    """The client names what is to be cached; that is honoured until it expires, whatever the server still has.

    Attributes:
        minimum: tokens; less is refused.
        ttl: seconds, where the client asks for none.
        longest_page: most objects of one page of a list.
    """

    minimum: int = 1024
    ttl: float = _HOUR
    longest_page: int = 1000


Profile: TypeAlias = Markers | Breakpoints | Steps
"""What a ledger keeps its entries by."""

ANTHROPIC = Markers()
OPENAI = Steps(1024, 128, idle=10 * _MINUTE, longest=_HOUR, ttls=(Ttl("24h", 24 * _HOUR),))
"""The models before breakpoints."""
OPENAI_BREAKPOINTS = Breakpoints()
DEEPSEEK = Steps(64, 64, idle=24 * _HOUR)
GEMINI = Implicit()
GEMINI_EXPLICIT = Explicit()


def seconds_of(profile: Profile, name: str, param: str) -> float:
    """The length of a time-to-live that a client names in field `param`. Raises RequestError for another."""
    for ttl in profile.ttls:
        if ttl.name == name:
            return ttl.seconds
    known = " or ".join(repr(ttl.name) for ttl in profile.ttls)
    raise RequestError(f"{param!r} is {name[:40]!r}; it must be {known}", param=param)
