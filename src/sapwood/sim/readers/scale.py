"""Texts become tokens where no tokenizer is named: in stretches of equal size, counted from the beginning of a prompt.

    bytes     Y o u   a r e   b r i e f …
    tokens    |-0-----|-1-------|-2-----|        4.5 bytes each: stretches of 4 and 5

Stretch i is the same place in every text, so two texts share just the stretches in front of their first different byte:
what `n` equal bytes are worth is `n` over the size, rounded down, never more. How long a text is in tokens is right on
average, not text by text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from sapwood.errors import UsageError
from sapwood.sim.readers.call import Call
from sapwood.sim.trace import Names

BYTES_PER_TOKEN = 4.0
"""Where nobody tells: English has 4 to 5 under today's vocabularies, code 3 to 4."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Attributes:
    bytes_per_token: above 0.
    texts: prompts that are texts, of which
    told: have their tokens counted by somebody.
    apart: 9 of 10 of these differ from what the scale gives by at most such a share of it.
    answers: that are texts and counted by nobody, so as long as the scale says.
    """

    bytes_per_token: float = BYTES_PER_TOKEN
    texts: int = 0
    told: int = 0
    apart: float = 0.0
    answers: int = 0

    @classmethod
    def of(cls, calls: Sequence[Call]) -> Scale:
        """By which all prompts together that somebody counted have as many tokens as he did."""
        texts = [call for call in calls if isinstance(call.prompt, bytes)]
        told = [(len(call.prompt), call.usage.prompt_tokens) for call in texts if call.usage.prompt_tokens]
        answers = sum(isinstance(call.reply, bytes) and call.usage.output_tokens is None for call in calls)
        if not told:
            return cls(texts=len(texts), answers=answers)
        sizes, tokens = np.array(told, np.float64).T
        size = float(sizes.sum() / tokens.sum())
        apart = np.quantile(np.abs(tokens * size / sizes - 1), 0.9)
        return cls(size, len(texts), len(told), float(apart), answers)

    def count(self, size: int) -> int:
        """Tokens of a text of so many bytes, the last one perhaps unfinished."""
        tokens = math.ceil(size / self.bytes_per_token)
        while self._end(tokens) < size:
            tokens += 1
        while tokens and self._end(tokens - 1) >= size:
            tokens -= 1
        return tokens

    def _end(self, tokens: int) -> int:
        return math.floor(tokens * self.bytes_per_token)

    def ends(self, size: int) -> list[int]:
        """0, then where each token of a text of so many bytes ends."""
        places = np.floor(np.arange(self.count(size) + 1) * self.bytes_per_token).astype(np.int64)
        ends: list[int] = np.minimum(places, size).tolist()
        return ends

    def notes(self) -> tuple[str, ...]:
        """For people; none where there is no text."""
        if not self.texts:
            return self._of_answers(", a guess that may be off by a third")
        if self.told:
            return (self._of_prompts(), *self._of_answers())
        return (
            f"token counts are guessed, {self._size}, as the log tells no usage and no --tokenizer is named: they may "
            "be off by a third, and memory, times and load with them",
        )

    @property
    def _size(self) -> str:
        return f"{self.bytes_per_token:.3g} bytes a token"

    def _of_prompts(self) -> str:
        of = f"all {self.texts:,}" if self.told == self.texts else f"{self.told:,} of {self.texts:,}"
        return (
            f"token counts are those of the log's usage, {self._size} over {of} prompts; single prompts are off by up "
            f"to {100 * self.apart:.0f} % (9 of 10)"
        )

    def _of_answers(self, guess: str = "") -> tuple[str, ...]:
        if not self.answers:
            return ()
        return (
            f"{self.answers:,} answers that nobody counted are as long as their texts, {self._size}{guess}",
        )


@dataclass(slots=True)
class Stretches:
    """Numbers for the stretches of texts, the same for the same, from `first` on."""

    scale: Scale
    first: int = 0
    _known: dict[bytes, int] = field(default_factory=dict)

    def names(self, text: bytes) -> Names:
        """int32 [tokens]. Raises UsageError where no number is left."""
        known, first = self._known, self.first
        cut = (text[start:end] for start, end in pairwise(self.scale.ends(len(text))))
        try:
            return np.array([known.setdefault(each, first + len(known)) for each in cut], np.int32)
        except OverflowError:
            raise UsageError(
                f"beside texts there is the token id {first - 1}: too few numbers are left for what is in them",
                hint="no model has such ids; look what the line is that has it",
            ) from None
