"""Under which name tokens are looked up, and how two stretches of tokens are compared.

Comparisons run in C, never in a Python loop over tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sapwood.errors import BooksError

Tokens: TypeAlias = NDArray[np.int32]
"""Token ids, one-dimensional."""

PageIds: TypeAlias = NDArray[np.int32]
"""Page ids, one-dimensional; the i-th holds the KV of tokens i·page_size .. (i+1)·page_size-1."""

PageKey: TypeAlias = int | bytes
"""All tokens of one page as a dictionary key: the token itself when a page holds one, else their bytes."""

_TOKEN_BYTES = 4
_FIRST_STRIDE = 64
_STRIDE_GROWTH = 8


@dataclass(frozen=True, slots=True)
class Namespace:
    """The root under which tokens are looked up: equal tokens under unequal namespaces never meet.

    Fields are compared one by one and never glued together, so "" and None are two different values and no
    choice of names can make two namespaces collide.
    """

    fingerprint: str
    """Of all that shapes KV: weights, dtype, rope, KV type."""
    adapter: str | None = None
    tenant: str | None = None
    salt: str | None = None
    public: str | None = None
    """Which public prefix came before, and how much of it. Only the cache sets this."""


def require_int32(tokens: Tokens) -> None:
    """Raises BooksError for tokens of another type."""
    if tokens.dtype != np.int32:
        raise BooksError(f"tokens are {tokens.dtype}; they must be int32, or equal tokens would not match")


def concatenated(parts: Sequence[PageIds]) -> PageIds:
    """A copy, of any number of parts."""
    if not parts:
        return np.empty(0, dtype=np.int32)
    return np.concatenate(parts) if len(parts) > 1 else parts[0].copy()


def page_key(tokens: Tokens, at: int, page_size: int) -> PageKey:
    """The page of tokens that starts at index `at`, as a dictionary key."""
    if page_size == 1:
        return int(tokens[at])
    return tokens[at : at + page_size].tobytes()


class Query:
    """Tokens to be looked up, laid out for it by one copy of their bytes.

    So a page becomes a key without a numpy scalar in between, and a whole edge is compared by one memcmp: where
    a path has many edges, numpy's cost for each call would be most of a lookup.
    """

    __slots__ = ("_bytes", "_ids", "_page_size", "tokens")

    def __init__(self, tokens: Tokens, page_size: int) -> None:
        self.tokens = tokens
        self._page_size = page_size
        self._bytes = tokens.tobytes()
        self._ids = memoryview(self._bytes).cast("i")

    def key(self, at: int) -> PageKey:
        """The page that starts at token `at`, as `page_key` gives it."""
        if self._page_size == 1:
            return self._ids[at]
        return self._bytes[at * _TOKEN_BYTES : (at + self._page_size) * _TOKEN_BYTES]

    def goes_on_with(self, run: Tokens, at: int) -> bool:
        """Whether all of a contiguous run follows from token `at` on."""
        return self._bytes.startswith(run.data, at * _TOKEN_BYTES)

    def shared_with(self, run: Tokens, at: int) -> int:
        """How many tokens from `at` on are those that the run begins with."""
        return common_prefix(run, self.tokens[at:])


def common_prefix(a: Tokens, b: Tokens) -> int:
    """How many leading tokens `a` and `b` share.

    Gallops: the stretch compared at once grows eightfold, so an early difference costs little and a long
    agreement runs at memory speed.
    """
    end = min(len(a), len(b))
    at, stride = 0, _FIRST_STRIDE
    while at < end:
        differs = a[at : min(at + stride, end)] != b[at : min(at + stride, end)]
        first = int(differs.argmax())
        if differs[first]:
            return at + first
        at, stride = at + stride, stride * _STRIDE_GROWTH
    return end
