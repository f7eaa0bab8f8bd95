"""Refuses bodies of more values than any call needs, before they are parsed: parsing lets no other thread run.

Counting bytes is some hundred times as fast as parsing. In text that is JSON no quote is preceded by a backslash
but inside a string; so the quotes that are not are at least as many as the strings.
"""

from __future__ import annotations

import re

from sapwood.errors import RequestError

MAX_CONTAINERS = 100_000
"""Lists and objects in one body."""
MAX_STRINGS = 500_000
"""Strings in one body, names of fields among them."""
MAX_VALUES = 1_000_000
"""Values in one body. A batch of prompts given as tokens has many."""

_STRING = re.compile(rb'"[^"]*"')


def check_shape(data: bytes) -> None:
    """Raises RequestError for a body of too many values. Whether it is JSON is not looked at."""
    _check("strings", data.count(b'"') - data.count(b'\\"'), MAX_STRINGS)
    if _containers(data) > MAX_CONTAINERS or data.count(b",") > MAX_VALUES:
        # Perhaps they are in the texts.
        bare = _STRING.sub(b"", data.replace(rb"\\", b"").replace(rb"\"", b""))
        _check("lists and objects", _containers(bare), MAX_CONTAINERS)
        _check("values", bare.count(b",") + 1, MAX_VALUES)


def _containers(data: bytes) -> int:
    return data.count(b"[") + data.count(b"{")


def _check(what: str, count: int, limit: int) -> None:
    if count > limit:
        raise RequestError(
            f"the body holds more than {limit} {what}", code="body_too_complex", hint="split the call"
        )
