"""Values out of files that anybody may have written: what a value cannot be is a ValueError here, never another."""

from __future__ import annotations

import json
from typing import Any, TypeGuard

import numpy as np

from sapwood.sim.trace import Names

_DEEPEST = 100
"""Values within each other: what is read by a function that calls itself must not nest without bound."""


def parsed(text: str) -> Any:
    """JSON. Raises ValueError for what is none, or is nested deeper than 100 lists and objects."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if text.count("[") + text.count("{") > _DEEPEST and _is_deeper(value, _DEEPEST):
        raise ValueError("it is nested too deep")
    return value


def _is_deeper(value: Any, most: int) -> bool:
    level: list[Any] = [[value]]
    depth = 0
    while level and depth <= most:
        within = (each for one in level for each in (one.values() if isinstance(one, dict) else one))
        level, depth = [each for each in within if isinstance(each, dict | list)], depth + 1
    return bool(level)


def are_ids(value: Any) -> TypeGuard[list[int]]:
    """Whether a value is meant as token ids: a list of whole numbers, at least one."""
    return isinstance(value, list) and set(map(type, value)) == {int}


def ids_of(value: Any) -> Names:
    """Token ids, int32 [tokens]. Raises ValueError for anything but a list of whole numbers that a model could have."""
    if value != [] and not are_ids(value):
        raise ValueError("token ids are whole numbers")
    try:
        ids = np.array(value, np.int32)
    except OverflowError:
        raise ValueError("there are token ids that no model has") from None
    if ids.min(initial=0) < 0:
        raise ValueError("there are token ids below 0")
    return ids
