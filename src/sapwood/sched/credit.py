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
_OWN = (0.0, 0.15, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85)
"""Chance that what followed so many tokens in the same sequence follows again; measured, see LAB.md."""
_REPLIES = (0.0, 0.05, 0.12, 0.2, 0.25, 0.3, 0.5, 0.5, 0.5)
"""And in an answer to something else."""

_OWN_WEIGHT, _SHARED_WEIGHT = 2.0, 4.0
"""Of what was expected, in guesses, against what this sequence has seen; and against what others have."""
_OWN_KEPT, _SHARED_KEPT = 0.7, 0.95
"""Of what was seen, with each further draft."""


class Record:
    """How often guesses were right of late."""

    __slots__ = ("_checked", "_kept", "_right")

    def __init__(self, kept: float = _SHARED_KEPT) -> None:
        self._kept = kept
        self._checked: dict[Source, float] = {}
        self._right: dict[Source, float] = {}

    def add(self, source: Source, guessed: int, right: int) -> None:
        """A draft of so many, of which the first `right` were: what stands behind a wrong guess says nothing."""
        checked = min(guessed, right + 1)
        self._checked[source] = self._kept * self._checked.get(source, 0.0) + checked
        self._right[source] = self._kept * self._right.get(source, 0.0) + right

    def chance(self, source: Source, expected: float, weight: float) -> float:
        """That a guess is right; `expected` before anything was seen, which counts as `weight` guesses."""
        right, checked = self._right.get(source, 0.0), self._checked.get(source, 0.0)
        return (weight * expected + right) / (weight + checked)


class Credit:
    """One sequence's ledger. `shared` is of its namespace: nobody learns from others' guesses."""

    __slots__ = ("_gained", "_own", "_shared")

    def __init__(self, shared: Record | None = None) -> None:
        self._gained = 0.0
        self._shared = shared or Record()
        self._own = Record(_OWN_KEPT)

    def balance(self, generated: int) -> float:
        """Tokens that a draft may cost, after so many were generated."""
        return FIRST + ALLOWANCE * generated + self._gained

    def chance(self, source: Source, matched: int) -> float:
        """That the first guess is right; `matched` tokens before it agreed."""
        table = _OWN if source == "own" else _REPLIES
        expected = _TREE if source == "tree" else table[min(matched, len(table) - 1)]
        expected = self._shared.chance(source, expected, _SHARED_WEIGHT)
        return self._own.chance(source, expected, _OWN_WEIGHT)

    def settle(self, source: Source, guessed: int, right: int, cost: float) -> None:
        """A draft of `guessed` tokens, of which the first `right` were, has cost so much."""
        self._gained = min(MOST, self._gained + right - cost)
        for record in (self._own, self._shared):
            record.add(source, guessed, right)
