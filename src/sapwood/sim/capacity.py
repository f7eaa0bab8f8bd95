"""Capacities in blocks of a trace, and which requests fit into them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sapwood.errors import UsageError
from sapwood.sim.trace import Trace


def units_of(trace: Trace, capacity_tokens: int) -> int:
    """Whole blocks. Raises UsageError if there is none."""
    units = capacity_tokens // trace.unit_tokens
    if units < 1:
        raise UsageError(
            f"a cache of {capacity_tokens} tokens holds no block of {trace.name}",
            hint=f"its blocks have {trace.unit_tokens} tokens; give at least as many",
        )
    return units


def useful(trace: Trace, units: int) -> int:
    """No more than there are blocks in all: nothing is ever evicted then, and a pool takes real memory."""
    return max(1, min(units, len(trace.names)))


def fits(trace: Trace, units: int) -> NDArray[np.bool_]:
    """bool [n], the requests that are no longer than the cache. An engine refuses the others."""
    return np.diff(trace.offsets) <= units
