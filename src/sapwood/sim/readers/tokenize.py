"""How texts become tokens where a trace holds texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sapwood.sim.trace import Names

Tokenize: TypeAlias = Callable[[str], Sequence[int] | NDArray[np.int32]]
"""Ids of the tokens of a text."""


def text_bytes(text: str) -> Names:
    """A token for each byte in UTF-8: prefixes are shared as a tokenizer would share them, lengths are some 4 times as
    long."""
    return np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8).astype(np.int32)


def as_names(tokens: Sequence[int] | NDArray[np.int32]) -> Names:
    return np.asarray(tokens, np.int32)
