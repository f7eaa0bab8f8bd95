"""Where the latest tokens occurred before: prompt lookup (Saxena, "Prompt Lookup Decoding", 2023).

Most of the time there is nothing to be found; a set of the pairs of neighbours tells so, at a constant cost for each
token. Else one comparison of the whole text with one token, in C, finds the place.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

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


class Pairs:
    """Which tokens have stood side by side in a text that only grows."""

    __slots__ = ("_known", "_pairs")

    def __init__(self) -> None:
        self._pairs: set[int] = set()
        self._known = 0

    def learn(self, text: Tokens) -> None:
        """The text is now this."""
        if len(text) > self._known:
            new = text[max(0, self._known - 1) :].tolist()
            self._pairs.update(_key(first, second) for first, second in pairwise(new))
            self._known = len(text)

    def have_last_of(self, tokens: Tokens) -> bool:
        """Whether the last two of these tokens stand side by side in the text."""
        return len(tokens) > 1 and _key(*tokens[-2:].tolist()) in self._pairs


def _key(first: int, second: int) -> int:
    return first << 32 | second
