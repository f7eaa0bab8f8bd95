"""The field `cache_retention`: what of a prompt a client wants to be evicted after other things."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sapwood.chat.body import shown
from sapwood.errors import RequestError, UsageError
from sapwood.types import LONGEST_SECONDS, Retain
from sapwood.units import parse_duration

FIELD = "cache_retention"
_KNOWN = ("priority", "ttl", "start", "end")


def parse_retention(value: object) -> tuple[Retain, ...]:
    """One wish, or a list of them: {"priority": 1..99, "ttl": "5m", "start": 0, "end": null}.

    Raises RequestError that names the offending field.
    """
    if value is None:
        return ()
    if not isinstance(value, list):
        return (_wish(value, FIELD),)
    return tuple(_wish(each, f"{FIELD}[{i}]") for i, each in enumerate(value))


def _wish(value: object, path: str) -> Retain:
    if not isinstance(value, dict):
        expected = 'it must be an object with "priority", or a list of them'
        raise RequestError(f"{path!r} is {shown(value)}; {expected}", param=path)
    for name in value:
        if name not in _KNOWN:
            known = ", ".join(_KNOWN)
            wrong = f"{path}.{name[:80]}"
            raise RequestError(
                f"{wrong!r} is not known; there are {known}", param=wrong, code="unknown_parameter"
            )
    priority = _whole(value, "priority", path, "a whole number from 1 to 99", 1, 99)
    if priority is None:
        raise RequestError(
            f"'{path}.priority' is required", param=f"{path}.priority", code="missing_required_parameter"
        )
    start = _whole(value, "start", path, "a token index, 0 or more", 0) or 0
    end = _whole(value, "end", path, f"a token index after start ({start}), or null", start + 1)
    return Retain(priority, _seconds(value.get("ttl"), f"{path}.ttl"), start, end)


def _whole(
    wish: Mapping[str, Any], name: str, path: str, expected: str, least: int, most: float = math.inf
) -> int | None:
    value = wish.get(name)
    if value is None or (type(value) is int and least <= value <= most):
        return value
    raise _wrong(f"{path}.{name}", value, expected)


def _seconds(value: object, path: str) -> float | None:
    expected = 'a duration such as "5m", or seconds, above 0 and at most 1e9; null keeps it for good'
    if isinstance(value, str):
        try:
            seconds = parse_duration(value)
        except UsageError:
            raise _wrong(path, value, expected) from None
    elif value is None:
        return None
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = value
    else:
        raise _wrong(path, value, expected)
    if not 0 < seconds <= LONGEST_SECONDS:
        raise _wrong(path, value, expected)
    return float(seconds)


def _wrong(path: str, value: object, expected: str) -> RequestError:
    return RequestError(f"{path!r} is {shown(value)}; it must be {expected}", param=path)
