"""The blocks of an Anthropic-shaped prompt, and which of them carry a cache marker."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from sapwood.chat.body import shown
from sapwood.chat.spots import Spot
from sapwood.errors import RequestError

Level = Literal["tools", "system", "messages"]

MAX_MARKERS = 4
TTLS: Mapping[str, float] = MappingProxyType({"5m": 300.0, "1h": 3600.0})
"""Seconds that a marker can ask for, by name."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One block of a body.

    Attributes:
        path: where it stands in the body.
        spot: where it stands in the conversation; None if it is not part of the prompt.
        unmarkable: why it can have no marker, or None if it can.
        ttl: seconds that its marker asks for; None without a marker.
    """

    path: str
    level: Level
    spot: Spot | None
    unmarkable: str | None = None
    ttl: float | None = None


def parse_marker(value: object, path: str) -> float | None:
    """The seconds that a `cache_control` asks for; None for null. Raises RequestError."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise RequestError(
            f'{path!r} is {shown(value)}; it must be {{"type": "ephemeral"}} or null', param=path
        )
    if value.get("type") != "ephemeral":
        raise RequestError(
            f"'{path}.type' is {shown(value.get('type'))}; it must be \"ephemeral\"", param=f"{path}.type"
        )
    ttl = value.get("ttl")
    if ttl is None:
        return TTLS["5m"]
    if not isinstance(ttl, str) or ttl not in TTLS:
        raise RequestError(f"'{path}.ttl' is {shown(ttl)}; it must be 5m or 1h", param=f"{path}.ttl")
    return TTLS[ttl]


def place_markers(pieces: Sequence[Piece], automatic: object) -> tuple[Piece, ...]:
    """The pieces with the body's own marker on the last one that can have it. Raises RequestError.

    Refused are a marker where none may be, a fifth, and one of an hour after one of five minutes.
    """
    for piece in pieces:
        if piece.ttl is not None and piece.unmarkable is not None:
            raise RequestError(
                f"'{piece.path}.cache_control' cannot be set: {piece.unmarkable}",
                param=f"{piece.path}.cache_control",
            )
    placed = list(pieces)
    ttl = parse_marker(automatic, "cache_control")
    last = next((i for i in reversed(range(len(pieces))) if pieces[i].unmarkable is None), None)
    if ttl is not None and last is not None:
        placed[last] = replace(placed[last], ttl=_joined(placed[last], ttl))
    marked = [piece for piece in placed if piece.ttl is not None]
    _check_count(marked)
    _check_order(marked)
    return tuple(placed)


def _joined(piece: Piece, ttl: float) -> float:
    if piece.ttl is not None and piece.ttl != ttl:
        raise RequestError(
            f"'cache_control' falls on '{piece.path}', which has a marker of another ttl",
            param="cache_control",
            hint="give both the same ttl, or leave one out",
        )
    return ttl


def _check_count(marked: Sequence[Piece]) -> None:
    if len(marked) > MAX_MARKERS:
        places = ", ".join(piece.path for piece in marked[:16])
        raise RequestError(
            f"at most {MAX_MARKERS} blocks may have cache_control; found {len(marked)}: {places}",
            param=f"{marked[MAX_MARKERS].path}.cache_control",
        )


def _check_order(marked: Sequence[Piece]) -> None:
    for before, after in itertools.pairwise(marked):
        assert before.ttl is not None
        assert after.ttl is not None
        if before.ttl < after.ttl:
            raise RequestError(
                f"'{after.path}.cache_control' asks for a longer ttl than '{before.path}' before it;"
                " longer ones must come first (tools, then system, then messages)",
                param=f"{after.path}.cache_control",
            )
