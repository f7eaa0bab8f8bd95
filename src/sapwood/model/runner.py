"""Runs a step's plan on a real model: one batch of token rows, then the draws."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sapwood.errors import DeadEndError
from sapwood.model.last_tokens import LastTokens
from sapwood.model.ops import StepSpans
from sapwood.model.sampler import Sampler
from sapwood.model.step_draws import StepDraws
from sapwood.plan import SequenceResult, SequenceWork, StepPlan, StepResult
from sapwood.types import TokenLogprob

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sapwood.model.decoder import Decoder
    from sapwood.model.kv import KvPool

_log = logging.getLogger("sapwood.model")

_SCORED_ROWS = 64
"""Rows of logits held at once when a prompt is scored: a vocabulary wide each."""


@dataclass(frozen=True, slots=True)
class _Share:
    """A work and its rows of the step; none if its last row was kept from before."""

    work: SequenceWork
    rows: slice
    kept: NDArray[np.float32] | None = None


class ModelRunner:
    """Implements `plan.Runner`. Raises ValueError for a plan that does not fit the model or the pool."""

    def __init__(self, decoder: Decoder, kv: KvPool) -> None:
        self.decoder = decoder
        self.kv = kv
        self.last_tokens = LastTokens(kv)
        self._sampler = Sampler(decoder.ops)
        self.recalled: Collection[int] = ()
        """Sequences of the last step that were not computed: they end prompts that came before."""

    def run(self, plan: StepPlan) -> StepResult:
        kept = self.last_tokens.recall(plan)
        self.recalled = kept.keys()
        shares = list(_shares(plan.works, kept))
        hidden = self._computed([s.work for s in shares if s.kept is None])
        for share in shares:
            if share.kept is None:
                self.last_tokens.keep(share.work, hidden[share.rows.stop - 1])
        draws = self._draws(hidden, [s for s in shares if s.work.sample is not None])
        return StepResult(plan.step, tuple(self._result(hidden, s, draws) for s in shares))

    def _computed(self, works: list[SequenceWork]) -> NDArray[np.float32]:
        """The final hidden rows of all their tokens."""
        if not works:
            return np.empty((0, 0), np.float32)
        tokens = _joined([work.tokens for work in works])
        return self.decoder.forward(tokens, _spans(works), self.kv)

    def _draws(self, hidden: NDArray[np.float32], shares: list[_Share]) -> StepDraws:
        """From the last rows of each work that draws."""
        works = [share.work for share in shares]
        if not shares:
            return StepDraws(self._sampler, np.empty((0, 0), np.float32), works)
        if len(shares) == len(hidden) and not self.recalled:
            rows = hidden
        else:
            rows = np.concatenate([_last_rows(hidden, share) for share in shares])
        return StepDraws(self._sampler, self.decoder.logits(rows), works)

    def _result(self, hidden: NDArray[np.float32], share: _Share, draws: StepDraws) -> SequenceResult:
        work = share.work
        try:
            scores = tuple(self._scores(hidden, share))
            token = draws.first(work) if work.sample is not None else None
        except DeadEndError as error:
            return SequenceResult(work.seq, error=error.message, dead_end=True)
        except ValueError as error:
            return SequenceResult(work.seq, error=str(error))
        except Exception as error:  # Whatever it is, it is about this sequence: the others get their tokens.
            _log.exception("sequence %d could not be drawn for", work.seq)
            return SequenceResult(work.seq, error=f"{type(error).__name__}: {error}")
        if token is None or not work.guesses:
            return SequenceResult(work.seq, token, scores)
        return SequenceResult(work.seq, token, scores, followed=tuple(draws.followed(work, token)))

    def _scores(self, hidden: NDArray[np.float32], share: _Share) -> Iterator[TokenLogprob]:
        work = share.work
        if work.score is None or work.score_targets is None:
            return
        rows = hidden[share.rows][work.score_skip :][: len(work.score_targets)]
        for first in range(0, len(rows), _SCORED_ROWS):
            logits = self.decoder.logits(rows[first : first + _SCORED_ROWS])
            targets = work.score_targets[first : first + _SCORED_ROWS].tolist()
            yield from self._sampler.score(list(logits), targets, work.score)


def _last_rows(hidden: NDArray[np.float32], share: _Share) -> NDArray[np.float32]:
    """[1 + guesses, hidden_size]: what is drawn from."""
    if share.kept is not None:
        return share.kept[None]
    return hidden[share.rows.stop - 1 - len(share.work.guesses) : share.rows.stop]


def _spans(works: list[SequenceWork]) -> StepSpans:
    return StepSpans(
        np.array([len(work.tokens) for work in works], np.int32),
        np.array([work.start for work in works], np.int32),
        np.ascontiguousarray(_joined([work.pages for work in works]), np.int32),
    )


def _joined(parts: list[NDArray[np.int32]]) -> NDArray[np.int32]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _shares(works: Iterable[SequenceWork], kept: Mapping[int, NDArray[np.float32]]) -> Iterator[_Share]:
    row = 0
    for work in works:
        if work.seq in kept:
            yield _Share(work, slice(row, row), kept[work.seq])
        else:
            yield _Share(work, slice(row, row + len(work.tokens)))
            row += len(work.tokens)
