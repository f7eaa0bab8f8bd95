"""One step's orders and its outcome: all that crosses between the scheduler and whoever runs the model.

A step is three verbs: `schedule() -> StepPlan`, `run(plan) -> StepResult`, `apply(result)`. A sequence has some
tokens computed and some wanted; a step lets the first catch up with the second. There is no prefill or decode phase.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sapwood.types import Constraint, SamplingParams, SeqId, TokenLogprob

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Guide(Protocol):
    """Says which tokens keep one sample within its grammar."""

    def mask(self, generated: NDArray[np.int32]) -> NDArray[np.bool_]:
        """shape (vocab_size,): those that may follow all that was generated so far; at least one.

        A function of `generated` alone, so that a preempted sample goes on as it would have. Raises
        DeadEndError if nothing may follow.
        """
        ...


class GuideMaker(Protocol):
    """Makes the guides of a vocabulary. Any thread may call it."""

    def check(self, constraint: Constraint, /) -> None:
        """Raises RequestError for a constraint that cannot be used."""
        ...

    def begin(self, constraint: Constraint, /) -> Guide:
        """A guide for one sample."""
        ...


@dataclass(frozen=True, slots=True)
class SampleOrder:
    """Draw one token after the last token of a sequence's work."""

    params: SamplingParams
    seed: int
    sample: int
    """Which of the request's n samples; part of the key of the draws."""
    prompt_len: int
    """Tokens before this index are prompt, the rest were generated (penalties, min_tokens)."""
    history: NDArray[np.int32]
    """All tokens so far, prompt and output; the drawn token gets position len(history)."""
    banned: tuple[int, ...] = ()
    """Tokens that cannot be drawn now (end tokens before min_tokens), unless the guide allows no others."""
    guide: Guide | None = None
    """Only what it allows can be drawn."""


@dataclass(frozen=True, slots=True)
class SequenceWork:
    """Compute `tokens` at positions start .. start+len(tokens)-1 of one sequence. Never empty."""

    seq: SeqId
    tokens: NDArray[np.int32]
    start: int
    pages: NDArray[np.int32]
    """Page table: page ids that cover positions 0 .. start+len(tokens)-1 (ceil of that over page_size entries)."""
    sample: SampleOrder | None = None
    """Set when this work reaches the end of the sequence: the logits of its last token are drawn from."""
    score: int | None = None
    """Set to report, for each computed position i, the logprob of the token at i+1 (`score` top entries)."""
    score_targets: NDArray[np.int32] | None = None
    """With `score`: the tokens that follow each computed token and exist (one shorter at the prompt's end)."""
    score_skip: int = 0
    """With `score`: how many of the first computed positions are left out; they have no target either."""
    guesses: tuple[SampleOrder, ...] = ()
    """With `sample`: so many of the last `tokens` are a draft, guesses of what is drawn. `sample` is then drawn after
    the token before them, and each guess that was right is followed by a draw of its own, which it has here."""
    whose: Hashable = None
    """Whose tokens these are. What a runner keeps beside the pages is for equal ones alone, and for None not at all."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    step: int
    works: tuple[SequenceWork, ...]
    flushes: int = 0
    """How often the cache was flushed so far: what a runner keeps beside the pages counts until the next."""

    @property
    def tokens(self) -> int:
        return sum(len(w.tokens) for w in self.works)


@dataclass(frozen=True, slots=True)
class SequenceResult:
    seq: SeqId
    drawn: TokenLogprob | None = None
    """The token drawn, if one was ordered. `logprob` is filled only when params.logprobs is not None (else 0.0)."""
    scores: tuple[TokenLogprob, ...] = ()
    error: str | None = None
    """This sequence alone failed (a non-finite logit, say): its KV must not be committed."""
    dead_end: bool = False
    """With `error`: its guide allows no token."""
    followed: tuple[TokenLogprob, ...] = ()
    """Tokens drawn after `drawn`: one for each guess that was right, up to the first that was not, or whose draw failed
    (a draw is what it is: it will fail again when it is ordered alone)."""


@dataclass(frozen=True, slots=True)
class StepResult:
    step: int
    results: tuple[SequenceResult, ...]
    """In the order of the plan's works."""


class Runner(Protocol):
    """Runs a plan: writes the KV of every computed token into its page, then answers."""

    def run(self, plan: StepPlan) -> StepResult: ...
