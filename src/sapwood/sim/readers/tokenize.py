"""How texts become tokens where a trace holds texts and somebody says how; `scale.py` is for where nobody does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sapwood.sim.trace import Names

Tokenize: TypeAlias = Callable[[str], Sequence[int] | NDArray[np.int32]]
"""Ids of the tokens of a text."""

A_BYTE = "a token is a byte, as --tokenizer bytes says: counts are some four times a model's"


def text_bytes(text: str) -> Names:
    """A token for each byte in UTF-8, as models have it that read bytes."""
    return np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8).astype(np.int32)


def as_names(tokens: Sequence[int] | NDArray[np.int32]) -> Names:
    return np.asarray(tokens, np.int32)
