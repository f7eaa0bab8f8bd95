"""Where the latest tokens occurred before: prompt lookup (Saxena, "Prompt Lookup Decoding", 2023).

One comparison of the whole text with one token, in C: about a nanosecond per token, so there is no index to keep.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sapwood.cache import Tokens

LONGEST = 8
"""An occurrence of so many tokens is as good as one of more."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Of the end of some tokens, in a text."""

    end: int
    """Index in the text of what followed it."""
    length: int
    """Tokens that agree, at most LONGEST."""


def last_occurrence(text: Tokens, tokens: Tokens) -> Occurrence | None:
    """The longest end of `tokens` that occurs in `text` with something behind it; of equals the last."""
    if not len(tokens):
        return None
    ends = np.flatnonzero(text[:-1] == tokens[-1])
    if not len(ends):
        return None
    length = 1
    while length < min(LONGEST, len(tokens)):
        longer = ends[ends >= length]
        longer = longer[text[longer - length] == tokens[-1 - length]]
        if not len(longer):
            break
        ends, length = longer, length + 1
    return Occurrence(int(ends[-1]) + 1, length)
