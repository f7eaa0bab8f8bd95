"""The draws of one step: first of all together, later what could not be drawn before a guess was known to be right."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from sapwood.model.sampler import is_plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from sapwood.model.sampler import Drawn, Sampler
    from sapwood.plan import SampleOrder, SequenceWork
    from sapwood.types import SeqId, TokenLogprob


class StepDraws:
    """Draws from all rows in one go but those behind a guess whose order is not plain: what a guide says of a text
    that nobody wrote is not asked for.
    """

    def __init__(self, sampler: Sampler, logits: NDArray[np.float32], works: list[SequenceWork]) -> None:
        """`logits` [sum of 1 + guesses, vocab_size]: the rows that each of `works` draws from, one after the other."""
        self._sampler = sampler
        self._rows = list(logits)
        self._orders = [order for work in works for order in _orders(work)]
        ends = accumulate(1 + len(work.guesses) for work in works)
        self._firsts: dict[SeqId, int] = {
            work.seq: end - 1 - len(work.guesses) for work, end in zip(works, ends, strict=True)
        }
        firsts = set(self._firsts.values())
        self._drawn: dict[int, Drawn] = {}
        self._draw([i for i, order in enumerate(self._orders) if i in firsts or is_plain(order)])

    def first(self, work: SequenceWork) -> TokenLogprob:
        """Raises what kept the token from being drawn."""
        return self._at(self._firsts[work.seq])

    def followed(self, work: SequenceWork, drawn: TokenLogprob) -> Iterator[TokenLogprob]:
        """The draws after each guess, for as long as what was drawn is what was guessed."""
        draft = work.tokens[len(work.tokens) - len(work.guesses) :].tolist()
        for row, guess in enumerate(draft, start=self._firsts[work.seq] + 1):
            if drawn.token != guess:
                return
            try:
                drawn = self._at(row)
            except Exception:  # Whatever it is, it is told when this draw is the next of its sequence.
                return
            yield drawn

    def _at(self, row: int) -> TokenLogprob:
        if row not in self._drawn:
            self._draw([row])
        drawn = self._drawn[row]
        if isinstance(drawn, Exception):
            raise drawn
        return drawn

    def _draw(self, rows: list[int]) -> None:
        drawn = self._sampler.draw([self._rows[i] for i in rows], [self._orders[i] for i in rows])
        self._drawn.update(zip(rows, drawn, strict=True))


def _orders(work: SequenceWork) -> tuple[SampleOrder, ...]:
    assert work.sample is not None
    return (work.sample, *work.guesses)
