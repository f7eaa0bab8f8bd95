"""What drafts may cost: a ledger that bounds how much they can slow a stream, and how often they were right.

A step in which every running sequence draws one token is delayed by the rows of a draft. The part of the step by
which it is delayed, times the sequences that wait for it, is the draft's price, in tokens. Each guess that was right
is a token gained by its sequence. A draft is made only if its price can be paid were all of it wrong: from what its
sequence has gained so far, and for the rest from one account of delay for all sequences together, which holds at
most FIRST steps and is given ALLOWANCE of each step. So in any stretch of steps, whoever comes and goes,

    delay by drafts that their own sequence's gains do not pay for  ≤  FIRST + ALLOWANCE · steps

and this is what each stream can lose, up to what is wrong with the estimates of costs.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

Source: TypeAlias = Literal["tree", "own", "replies"]

FIRST = 1.0
"""Steps by which all may be delayed before anything is gained."""
ALLOWANCE = 0.015
"""And of each step."""
MOST = 24.0
"""A gain from long ago is no reason to lose much now."""

_TREE = 0.8
"""Chance that what followed the very same tokens follows again."""
_OWN = (0.0, 0.15, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85)
"""Chance that what followed so many tokens in the same sequence follows again; measured, see LAB.md."""
_REPLIES = (0.0, 0.05, 0.12, 0.2, 0.25, 0.3, 0.5, 0.5, 0.5)
"""And in an answer to something else."""

_SEQUENCE_WEIGHT, _NAMESPACE_WEIGHT = 2.0, 4.0
"""Of what was expected, in guesses, against what this sequence has seen; and against what its namespace has."""
_SEQUENCE_KEPT, _NAMESPACE_KEPT = 0.7, 0.95
"""Of what was seen, with each further draft."""


class Record:
    """How often guesses were right of late."""

    __slots__ = ("_checked", "_kept", "_right")

    def __init__(self, kept: float = _NAMESPACE_KEPT) -> None:
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


class Allowance:
    """How many steps' time drafts may still cost everybody for nothing."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = FIRST

    def add(self, steps: float) -> None:
        """More of it, or less."""
        self.left = min(FIRST, self.left + steps)


class Credit:
    """One sequence's ledger. `namespace` is of its namespace: nobody learns from others' guesses."""

    __slots__ = ("_allowance", "_gained", "_sequence", "namespace")

    def __init__(self, allowance: Allowance, namespace: Record) -> None:
        self.namespace = namespace
        self._allowance = allowance
        self._gained = 0.0
        self._sequence = Record(_SEQUENCE_KEPT)

    def balance(self, streams: int, chance: float) -> float:
        """Tokens that a draft may cost where so many sequences wait for the step.

        The less likely it is right, the more it leaves of the allowance: guesses that mostly fail would else use all
        of it up, and an answer that is given again could never begin to be guessed.
        """
        return self._gained + streams * max(0.0, self._allowance.left - (1 - chance) * FIRST)

    def chance(self, source: Source, matched: int) -> float:
        """That the first guess is right; `matched` tokens before it agreed."""
        table = _OWN if source == "own" else _REPLIES
        expected = _TREE if source == "tree" else table[min(matched, len(table) - 1)]
        expected = self.namespace.chance(source, expected, _NAMESPACE_WEIGHT)
        return self._sequence.chance(source, expected, _SEQUENCE_WEIGHT)

    def pay(self, price: float, streams: int) -> None:
        """For a draft, before it is known what becomes of it; at most the balance."""
        self._gained -= price
        self._allowance.add(min(0.0, self._gained) / streams)

    def settle(self, source: Source, guessed: int, right: int, streams: int) -> None:
        """Of the draft of `guessed` tokens that was paid for last, the first `right` were."""
        lent = max(0.0, -self._gained)
        self._gained = min(MOST, self._gained + right)
        self._allowance.add((lent - max(0.0, -self._gained)) / streams)
        self._gained = max(0.0, self._gained)
        for record in (self._sequence, self.namespace):
            record.add(source, guessed, right)
