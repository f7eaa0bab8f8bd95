"""What drafts may cost one sequence: a ledger that bounds how much they can slow it, and how often they were right.

It is kept in tokens. A step in which every running sequence draws one token is delayed by the rows of a draft; the
part of the step by which it is delayed, times the sequences that wait for it, is what the draft costs. Each guess
that was right is a token gained. A draft is made only if the sequence could pay for it were all of it wrong, so

    cost of all drafts - tokens gained  ≤  FIRST + ALLOWANCE · tokens generated

always. Since each sequence pays for the delay of all, the bound holds for every stream in the batch, up to what is
wrong with the estimates of costs.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

Source: TypeAlias = Literal["tree", "own", "replies"]

FIRST = 1.0
"""Tokens that may be lost before anything is gained."""
ALLOWANCE = 0.015
"""And for each token generated."""
MOST = 24.0
"""A gain from long ago is no reason to lose much now."""

_TREE = 0.8
"""Chance that what followed the very same tokens follows again."""
_AFTER = (0.0, 0.1, 0.2, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75)
"""Chance that what followed so many tokens elsewhere follows again."""

_PRIOR_GUESSES = 2.0
"""The weight of these chances against what is seen."""
_KEPT = 0.7
"""Of what was seen, with each draft."""


class Credit:
    """One sequence's ledger."""

    __slots__ = ("_checked", "_gained", "_right")

    def __init__(self) -> None:
        self._gained = 0.0
        self._checked: dict[Source, float] = {}
        self._right: dict[Source, float] = {}

    def balance(self, generated: int) -> float:
        """Tokens that a draft may cost, after so many were generated."""
        return FIRST + ALLOWANCE * generated + self._gained

    def chance(self, source: Source, matched: int) -> float:
        """That a guess is right if those before it were; `matched` tokens before the first one agreed."""
        prior = _TREE if source == "tree" else _AFTER[min(matched, len(_AFTER) - 1)]
        right, checked = self._right.get(source, 0.0), self._checked.get(source, 0.0)
        return (_PRIOR_GUESSES * prior + right) / (_PRIOR_GUESSES + checked)

    def settle(self, source: Source, guessed: int, right: int, cost: float) -> None:
        """A draft of `guessed` tokens, of which the first `right` were, has cost so much."""
        self._gained = min(MOST, self._gained + right - cost)
        # What stands behind a wrong guess says nothing.
        checked = min(guessed, right + 1)
        self._checked[source] = _KEPT * self._checked.get(source, 0.0) + checked
        self._right[source] = _KEPT * self._right.get(source, 0.0) + right
