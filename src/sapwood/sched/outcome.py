"""What the scheduler tells: who was admitted or refused, and what a step did for each sequence."""

from __future__ import annotations

from dataclasses import dataclass

from sapwood.sched.sequence import Sequence
from sapwood.types import TokenLogprob


@dataclass(frozen=True, slots=True)
class Admitted:
    """A sequence is read for the first time; `sequence.reuse` is now known."""

    sequence: Sequence


@dataclass(frozen=True, slots=True)
class Refused:
    """A sequence was dropped: the pool cannot hold it although nothing else runs."""

    sequence: Sequence
    reason: str


Notice = Admitted | Refused


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step did for one sequence."""

    sequence: Sequence
    prompt_done: bool
    """This step computed the prompt's last token for the first time since admission."""
    computed: int = 0
    """Tokens this step computed for it."""
    drawn: tuple[TokenLogprob, ...] = ()
    """Several where guesses were right. The sequence has them all; who finds that it ends before drops the rest."""
    guessed: int = 0
    """Of the tokens computed, how many were guesses, right or wrong."""
    error: str | None = None
    """It failed; the scheduler has already dropped it."""
    dead_end: bool = False
    """With `error`: its guide allows no token."""
