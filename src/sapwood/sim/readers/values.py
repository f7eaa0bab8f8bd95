"""Values out of files that anybody may have written: what a value cannot be is a ValueError here, never another."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from sapwood.sim.trace import Names


def parsed(text: str) -> Any:
    """JSON. Raises ValueError for what is none, or is nested deeper than can be read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def ids_of(value: Any) -> Names:
    """Token ids, int32 [tokens]. Raises ValueError for anything but a list of whole numbers that a model could have."""
    if not isinstance(value, list) or not set(map(type, value)) <= {int}:
        raise ValueError("token ids are whole numbers")
    try:
        ids = np.array(value, np.int32)
    except OverflowError:
        raise ValueError("there are token ids that no model has") from None
    if ids.min(initial=0) < 0:
        raise ValueError("there are token ids below 0")
    return ids
