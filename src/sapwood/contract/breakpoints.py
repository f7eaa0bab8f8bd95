"""Which boundaries of a prompt a request writes, and at which it looks for what earlier ones wrote."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sapwood.contract.block import LEVELS, Block
from sapwood.contract.profiles import Breakpoints, Markers, Profile, Steps
from sapwood.errors import RequestError


@dataclass(frozen=True, slots=True, order=True)
class Boundary:
    """A place where a cached prefix may end.

    Attributes:
        end: tokens before it.
        rank: of its level; the settings of all levels up to it are part of its key.
    """

    end: int
    rank: int


@dataclass(frozen=True, slots=True)
class Write:
    """A boundary that a request writes.

    Attributes:
        ttl: seconds without use after which it is gone.
        longest: seconds after which it is gone, used or not; None for no such limit.
    """

    boundary: Boundary
    ttl: float
    longest: float | None = None


@dataclass(frozen=True, slots=True)
class Boundaries:
    """Attributes:
    writes: in prompt order.
    lookups: in prompt order.
    charged: whether tokens written are told apart from plain ones; if not, reads are whole steps.
    """

    writes: tuple[Write, ...]
    lookups: tuple[Boundary, ...]
    charged: bool = True


def boundaries_of(profile: Profile, blocks: Sequence[Block], length: int) -> Boundaries:
    """The boundaries of a prompt of `length` tokens, by a profile's rules. Raises RequestError where they forbid it."""
    ends = [0, *(block.end for block in blocks), length]
    if any(end > after for end, after in itertools.pairwise(ends)):
        raise ValueError("blocks must be in prompt order and end within the prompt")
    if isinstance(profile, Markers):
        return _marked(profile, blocks)
    return _set(profile, blocks) if isinstance(profile, Breakpoints) else _stepped(profile, blocks, length)


def _marked(profile: Markers, blocks: Sequence[Block]) -> Boundaries:
    _check_markers(profile, blocks)
    places = _places(blocks)
    marks = [i for i, block in enumerate(blocks) if block.ttl is not None]
    seen = {i for mark in marks for i in range(max(0, mark - profile.lookback + 1), mark + 1)}
    return Boundaries(_writes(blocks, places, marks), _lookups(places, seen))


def _check_markers(profile: Markers, blocks: Sequence[Block]) -> None:
    """Raises RequestError for too many markers, or a longer ttl after a shorter one."""
    ttls = [block.ttl for block in blocks if block.ttl is not None]
    if len(ttls) > profile.most:
        raise RequestError(
            f"{len(ttls)} blocks carry 'cache_control'; at most {profile.most} may", param="cache_control"
        )
    if any(ttl < after for ttl, after in itertools.pairwise(ttls)):
        raise RequestError(
            "a 'cache_control' with a longer ttl comes after one with a shorter; in prompt order (tools, system,"
            " messages) the longer must come first",
            param="cache_control.ttl",
        )


def _set(profile: Breakpoints, blocks: Sequence[Block]) -> Boundaries:
    places = _places(blocks)
    clients = [i for i, block in enumerate(blocks) if block.ttl is not None and not block.automatic]
    ends = [i for i, block in enumerate(blocks) if block.ttl is not None and block.automatic]
    room = profile.written - len(ends[-1:])
    opening = [i for i in ends if blocks[i].level != LEVELS[-1]][-1:]
    seen = {
        *clients[: profile.first],
        *clients[-profile.latest :],
        *ends[-1 - profile.message_ends :],
        *opening,
    }
    return Boundaries(_writes(blocks, places, sorted([*clients[-room:], *ends[-1:]])), _lookups(places, seen))


def _stepped(profile: Steps, blocks: Sequence[Block], length: int) -> Boundaries:
    # All settings count at every step: nobody says where a step's text came from.
    asked = [block.ttl for block in blocks if block.ttl is not None]
    ttl, longest = (asked[-1], asked[-1]) if asked else (profile.idle, profile.longest)
    steps = [Boundary(end, len(LEVELS) - 1) for end in range(profile.minimum, length + 1, profile.step)]
    return Boundaries(tuple(Write(step, ttl, longest) for step in steps), tuple(steps), charged=False)


def _places(blocks: Sequence[Block]) -> list[Boundary]:
    """Where each block ends. A template may write a later level first: then its settings count from there on."""
    places, rank = [], 0
    for block in blocks:
        rank = max(rank, LEVELS.index(block.level))
        places.append(Boundary(block.end, rank))
    return places


def _writes(blocks: Sequence[Block], places: Sequence[Boundary], chosen: Iterable[int]) -> tuple[Write, ...]:
    marks = ((places[i], blocks[i].ttl) for i in chosen)
    longest: dict[Boundary, float] = {}
    for place, ttl in marks:
        assert ttl is not None, "only marked blocks are chosen"
        longest[place] = max(ttl, longest.get(place, 0.0))
    return tuple(Write(place, ttl) for place, ttl in longest.items())


def _lookups(places: Sequence[Boundary], chosen: Iterable[int]) -> tuple[Boundary, ...]:
    return tuple(sorted({places[i] for i in chosen}))
