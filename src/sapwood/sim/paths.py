"""One number for each path of names: so that equal numbers mean equal prefixes, whatever names a trace has.

Block traces as a rule name a block for all that comes before it, and the names will do. Where they do not (token ids,
or the same names under several scopes), paths are told apart by a polynomial hash of 64 bits; that no two paths share
one is then proved, not assumed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sapwood.errors import UsageError
from sapwood.sim.trace import Trace

_BLOCKS_AT_ONCE = 1 << 22
_SPARSE = 8
"""Largest name in a trace, as a multiple of its blocks, up to which a table by name is worth its memory."""

_SEEDS = range(4)
_BASE = np.uint64(0x9E3779B97F4A7C15)


def path_ids(trace: Trace) -> NDArray[np.int32]:
    """int32 [blocks], not negative: equal just where scope, name and all names before are equal."""
    names = trace.names
    if len(names) == 0:
        return names
    low, high = int(names.min()), int(names.max())
    if low >= 0 and high < _SPARSE * len(names) + 1024 and _stand_for_their_paths(trace, high + 1):
        return names
    for seed in _SEEDS:
        ids = _hashed(trace, seed)
        if _prove(trace, ids):
            return ids
    raise UsageError(
        f"the paths of {trace.name} cannot be told apart", hint="this is a fault of ours; report it"
    )


def _stand_for_their_paths(trace: Trace, count: int) -> bool:
    """Whether each name always comes after the same one, or first in the same scope."""
    before = np.full(count, np.iinfo(np.int32).min, np.int32)
    for at in range(0, len(trace.names), _BLOCKS_AT_ONCE):
        names = trace.names[at : at + _BLOCKS_AT_ONCE]
        parents = _parents(trace, trace.names, at, at + len(names))
        known = before[names]
        fresh = known == np.iinfo(np.int32).min
        before[names[fresh]] = parents[fresh]
        if not np.array_equal(before[names], parents):
            return False
    return True


def _parents(trace: Trace, ids: NDArray[np.int32], start: int, end: int) -> NDArray[np.int32]:
    """What comes before blocks start .. end-1: another's id, or -1 - scope."""
    parents = np.empty(end - start, np.int32)
    parents[1:] = ids[start : end - 1]
    if start:
        parents[0] = ids[start - 1]
    row = int(np.searchsorted(trace.offsets, start))
    last = int(np.searchsorted(trace.offsets, end))
    firsts = trace.offsets[row:last]
    # Of rows without blocks the last one that starts here has the block.
    parents[firsts - start] = -1 - trace.scopes[row:last].astype(np.int32)
    return parents


def _hashed(trace: Trace, seed: int) -> NDArray[np.int32]:
    lengths = np.diff(trace.offsets)
    powers = np.full(int(lengths.max()), _BASE, np.uint64)
    powers[0] = 1
    powers = np.multiply.accumulate(powers)
    depth = np.arange(len(trace.names)) - np.repeat(trace.offsets[:-1], lengths)
    terms = _mixed(trace.names.astype(np.int64).astype(np.uint64) + np.uint64(seed << 40)) * powers[depth]
    sums = np.cumsum(terms, dtype=np.uint64)
    before = np.concatenate(([np.uint64(0)], sums))[trace.offsets[:-1]]
    salt = _mixed(trace.scopes.astype(np.uint64) + np.uint64((seed + 1) << 48))
    hashes = sums - np.repeat(before, lengths) + np.repeat(salt, lengths) + _mixed(depth.astype(np.uint64))
    return np.asarray(np.unique(hashes, return_inverse=True)[1], np.int32)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spreads 64 bits (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014)."""
    values = values + _BASE
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _prove(trace: Trace, ids: NDArray[np.int32]) -> bool:
    """Equal ids have one name and one id before them; so, from the start on, they are one path."""
    parents = _parents(trace, ids, 0, len(ids))
    count = int(ids.max()) + 1
    for column in (parents, trace.names):
        kept = np.empty(count, np.int32)
        kept[ids] = column
        if not np.array_equal(kept[ids], column):
            return False
    return True
