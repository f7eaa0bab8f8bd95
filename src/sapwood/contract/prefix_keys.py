"""The name of a prefix: a hash over its tokens and over the settings that are part of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sapwood.contract.block import LEVELS
from sapwood.contract.breakpoints import Boundary

PrefixKey: TypeAlias = bytes

Tokens: TypeAlias = NDArray[np.int32]
"""Token ids, one-dimensional and contiguous."""

_KEY_BYTES = 16
_LENGTH_BYTES = 8


def prefix_keys(
    tokens: Sequence[int] | Tokens, boundaries: Sequence[Boundary], settings: Mapping[str, str]
) -> dict[Boundary, PrefixKey]:
    """A key for each boundary; `boundaries` are in prompt order. BLAKE2b (RFC 7693), one pass over the tokens.

    `settings` says what besides its tokens a level depends on, by level. A level's settings are part of the keys
    of all boundaries from that level on.
    """
    seeds = _seeds(settings)
    ids = np.asarray(tokens, dtype=np.int32)
    hasher, at, keys = hashlib.blake2b(digest_size=32), 0, {}
    for boundary in boundaries:
        hasher.update(ids[at : boundary.end].data)
        at = boundary.end
        keys[boundary] = digest(seeds[boundary.rank] + hasher.digest())
    return keys


def digest(data: bytes) -> PrefixKey:
    return hashlib.blake2b(data, digest_size=_KEY_BYTES).digest()


def _seeds(settings: Mapping[str, str]) -> list[bytes]:
    if unknown := settings.keys() - set(LEVELS):
        raise ValueError(f"settings are by level ({', '.join(LEVELS)}), not by {sorted(unknown)}")
    seed, seeds = b"", []
    for level in LEVELS:
        text = settings.get(level, "").encode("utf-8", "surrogatepass")
        # With its length in front: no two lists of settings can be spelled alike.
        seed += len(text).to_bytes(_LENGTH_BYTES, "little") + text
        seeds.append(digest(seed))
    return seeds
