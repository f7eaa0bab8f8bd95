"""A runner that computes nothing: it draws what the trace says was said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sapwood.cache import Tokens
from sapwood.plan import SequenceResult, SequenceWork, StepPlan, StepResult
from sapwood.types import SeqId, TokenLogprob


class NotForetoldError(LookupError):
    """A sequence wants a token of which nothing is known: what was said ended before."""


class Foretold:
    """Implements Runner; `tokens` are all tokens, of prompt and answer, of each sequence that may run.

    `run` raises NotForetoldError.
    """

    def __init__(self, tokens: Mapping[SeqId, Tokens]) -> None:
        self._tokens = tokens

    def run(self, plan: StepPlan) -> StepResult:
        return StepResult(plan.step, tuple(map(self._run_work, plan.works)))

    def _run_work(self, work: SequenceWork) -> SequenceResult:
        if work.sample is None:
            return SequenceResult(work.seq)
        tokens = self._tokens[work.seq]
        at = work.start + len(work.tokens) - len(work.guesses)
        if at >= len(tokens):
            raise NotForetoldError(f"token {at} of sequence {work.seq}")
        drawn = TokenLogprob(int(tokens[at]), 0.0)
        followed = tuple(_followed(work, tokens[at:])) if work.guesses else ()
        return SequenceResult(work.seq, drawn, followed=followed)


def _followed(work: SequenceWork, told: Tokens) -> Iterator[TokenLogprob]:
    """One for each guess that is what was said, up to the first that is not; none behind the end."""
    draft = work.tokens[len(work.tokens) - len(work.guesses) :]
    for guess, drawn, follows in zip(draft, told, told[1:], strict=False):
        if guess != drawn:
            return
        yield TokenLogprob(int(follows), 0.0)
