"""The scores of one prompt: which are wanted, which are there, and how much of the prompt need not be computed.

A token's score is read off the hidden state of the token before it. So what the cache holds can be reused up to,
but not with, the token before the first whose score is missing; and scores that the store has are not missing.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from sapwood.cache import Namespace, ScoreStore, Trail
from sapwood.types import TokenLogprob


class PromptScores:
    """Scores of the prompt's tokens from `first` on; `top` of the likeliest tokens with each.

    Attributes:
        length: of the prompt.
        first: index of the first token to score; nothing comes before token 0.
    """

    __slots__ = ("_ahead", "_entries", "_epoch", "_kept", "_looked", "_trail", "first", "length", "top")

    def __init__(self, namespace: Namespace, prompt: NDArray[np.int32], top: int, start: int) -> None:
        self.length = len(prompt)
        self.first = min(max(1, start), self.length)
        self.top = top
        self._entries: list[TokenLogprob] = []
        self._trail = Trail(namespace, prompt)
        self._ahead = 0
        self._looked: int | None = None
        self._epoch: int | None = None
        self._kept = 0

    @property
    def missing(self) -> int:
        """Index of the first token whose score is not here yet; the prompt's length if there is none."""
        return self.first + len(self._entries)

    @property
    def unknown(self) -> int:
        """The same, but for the store: as of the last `look`."""
        return self.missing + self._ahead

    def readable(self, most: int) -> int:
        """Of `most` tokens, how many need not be computed for the scores."""
        return most if self.unknown >= self.length else min(most, self.unknown - 1)

    def will_have(self, other: PromptScores) -> bool:
        """Whether what this prompt adds to the store goes on where `other` knows no further."""
        return other.top <= self.top and ScoreStore.keeps(self.top) and self.first <= other.unknown

    def told(self) -> tuple[TokenLogprob | None, ...]:
        """An entry for each token of the prompt, once none is missing."""
        return (*[None] * self.first, *self._entries)

    def look(self, store: ScoreStore) -> None:
        """See how many of the missing ones the store has. Cheap while that does not change."""
        if self._looked != store.version:
            self._ahead = store.known(self._trail, self.missing, self.top)
            self._looked = store.version

    def take(self, store: ScoreStore) -> None:
        """Read these from the store."""
        self._entries += store.read(self._trail, self.missing, self.top)
        self._ahead, self._looked = 0, None
        self._kept = len(self._entries)

    def begin(self, store: ScoreStore) -> None:
        """What is computed from now on may be added to the store, until that is flushed."""
        if self._epoch is None:
            self._epoch = store.epoch

    def add(self, scores: Iterable[TokenLogprob]) -> None:
        """Those that come next."""
        self._entries += scores

    def keep(self, store: ScoreStore) -> None:
        """Add to the store what it was not given yet."""
        if self._epoch == store.epoch:
            new = len(self._entries) - self._kept
            store.add(self._trail, self.first, self._entries, new, self.top)
            self._kept = len(self._entries)
