"""Where the latest tokens occurred before: prompt lookup (Saxena, "Prompt Lookup Decoding", 2023).

Most of the time there is nothing to be found, which a table of the pairs of neighbours tells at once. Else one
comparison of at most WINDOW tokens with one token finds the places, of which at most PLACES are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from sapwood.cache import Tokens

LONGEST = 8
"""An occurrence of so many tokens is as good as one of more."""
LEAST = 2
"""One token that agrees tells too little."""
WINDOW = 4096
"""What stands before the last so many tokens is not looked at."""
PLACES = 64
"""Of the places where LEAST tokens agree, so many are looked at, the last ones."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Of the end of some tokens, in a text."""

    end: int
    """Index in the text of what followed it."""
    length: int
    """Tokens that agree, from LEAST to LONGEST."""


def last_occurrence(text: Tokens, tokens: Tokens) -> Occurrence | None:
    """The longest end of `tokens` that occurs in the window of `text`, something behind it; of equals the last."""
    if len(tokens) < LEAST:
        return None
    before = max(0, len(text) - WINDOW)
    window = text[before:]
    ends, length = np.flatnonzero(window[:-1] == tokens[-1]), 1
    while len(ends) and length < min(LONGEST, len(tokens)):
        longer = ends[ends >= length]
        longer = longer[window[longer - length] == tokens[-1 - length]][-PLACES:]
        if not len(longer):
            break
        ends, length = longer, length + 1
    return Occurrence(before + int(ends[-1]) + 1, length) if length >= LEAST else None


class Pairs:
    """Which tokens may have stood side by side in the window of a text that only grows.

    A Bloom filter (Bloom, "Space/Time Trade-offs in Hash Coding with Allowable Errors", 1970) with one hash: it takes
    BYTES however long the text is, misses no pair of the window, and finds one in ten that is not there.
    """

    __slots__ = ("_added", "_known", "_seen")

    BYTES = 2**15

    def __init__(self) -> None:
        self._seen = bytearray(self.BYTES)
        self._known = 0
        self._added = 0

    def learn(self, text: Tokens) -> None:
        """The text is now this."""
        self.goes_on(text, len(text) - self._known)
        self._known = len(text)

    def goes_on(self, text: Tokens, count: int) -> None:
        """The text has got so many tokens more, and now ends so."""
        new = text[max(0, len(text) - count - 1, len(text) - WINDOW) :]
        if self._added + len(new) > 2 * WINDOW:
            self._seen, self._added, new = bytearray(self.BYTES), 0, text[-WINDOW:]
        self._added += len(new)
        if len(new) <= _FEW:
            for first, second in pairwise(new.tolist()):
                self._seen[_place(first, second)] = 1
            return
        places = new[:-1].astype(np.uint32) * np.uint32(_FIRST) + new[1:].astype(np.uint32) * np.uint32(
            _SECOND
        )
        np.frombuffer(self._seen, np.uint8)[places >> _SHIFT] = 1

    def may_have_last_of(self, tokens: Tokens) -> bool:
        """Whether the last two of these tokens may stand side by side in the window of the text."""
        return len(tokens) > 1 and self._seen[_place(*tokens[-2:].tolist())] == 1


_FIRST, _SECOND, _SHIFT = 0x9E3779B1, 0x85EBCA6B, 17
_FEW = 32
"""So many are faster one by one."""


def _place(first: int, second: int) -> int:
    return ((first * _FIRST + second * _SECOND) & 0xFFFFFFFF) >> _SHIFT
