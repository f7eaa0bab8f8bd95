"""A source of drafts that knows what will be said, and is wrong on purpose now and then."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np

from engine.rig import VOCAB, Rig
from sapwood.sched import Drafts, Sequence

if TYPE_CHECKING:
    from sapwood.cache import Tokens
    from sapwood.types import SeqId


class Prophet(Drafts):
    """Drafts of any length at any time, whatever they cost: right up to some place, or to the end.

    It guesses beyond end tokens and stop strings too, as it does not look for them.
    """

    def __init__(self, rig: Rig, *, wrong: float = 0.2, longest: int = 9) -> None:
        super().__init__(rig.cache)
        self.drafts = 0
        self._rig = rig
        self._wrong, self._longest = wrong, longest
        self._dice = random.Random(5)
        self._known: dict[SeqId, list[int]] = {}

    @classmethod
    def take_over(cls, rig: Rig, *, wrong: float = 0.2, longest: int = 9) -> Prophet:
        prophet = cls(rig, wrong=wrong, longest=longest)
        rig.engine._drafts = rig.engine._scheduler._drafts = prophet
        return prophet

    def draft(self, sequence: Sequence, most: int) -> Tokens:
        length = min(most, self._dice.randint(0, self._longest))
        ahead = self._future(sequence)[sequence.generated :][: max(0, length)]
        guesses = [t if self._dice.random() >= self._wrong else (t + 1) % VOCAB for t in ahead]
        self.drafts += bool(guesses)
        return np.array(guesses, np.int32)

    def settle(self, sequence: Sequence, guessed: int, right: int) -> None:
        assert guessed >= right
        assert sequence.lease is not None
        self._cache.shrink(sequence.lease, sequence.computed)

    def _future(self, sequence: Sequence) -> list[int]:
        if sequence.id not in self._known:
            drawn = self._rig.runner.solo(
                sequence.request.prompt,
                sequence.params,
                sequence.max_len - sequence.prompt_len,
                seed=sequence.seed,
                sample=sequence.sample,
                end_tokens=sequence.end_tokens,
            )
            self._known[sequence.id] = [entry.token for entry in drawn]
        return self._known[sequence.id]
