"""What a step is ordered to do for one sequence."""

from __future__ import annotations

import numpy as np

from sapwood.cache import Tokens
from sapwood.plan import SampleOrder, SequenceWork
from sapwood.sched.sequence import Sequence

_NO_DRAFT = np.empty(0, np.int32)
_NO_DRAFT.flags.writeable = False


def work_of(sequence: Sequence, count: int, page_size: int, draft: Tokens = _NO_DRAFT) -> SequenceWork:
    """Compute the next `count` tokens of one that has a lease; the work that reaches the end also draws.

    There it may bring a draft of what comes next, for which the lease has pages.
    """
    assert sequence.lease is not None
    start, end = sequence.computed, sequence.computed + count
    if len(draft):
        return _speculation(sequence, draft, page_size)
    scores = sequence.scores
    # What is read again after an eviction may be scored already.
    unscored = sequence.prompt_len if scores is None else max(start + 1, scores.missing)
    targets = sequence.tokens[unscored : min(end + 1, sequence.prompt_len)]
    scoring = scores is not None and len(targets) > 0
    return SequenceWork(
        seq=sequence.id,
        tokens=sequence.tokens[start:end],
        start=start,
        pages=sequence.lease.table[: -(-end // page_size)],
        whose=sequence.namespace if sequence.reads_cache else None,
        sample=_sample_order(sequence, sequence.tokens) if end == len(sequence) and sequence.draws else None,
        score=scores.top if scores is not None and scoring else None,
        score_targets=targets if scoring else None,
        score_skip=unscored - 1 - start if scoring else 0,
    )


def _speculation(sequence: Sequence, draft: Tokens, page_size: int) -> SequenceWork:
    assert sequence.lease is not None
    tokens = sequence.with_draft(draft)
    orders = [_sample_order(sequence, tokens[:end]) for end in range(len(sequence), len(tokens) + 1)]
    return SequenceWork(
        seq=sequence.id,
        tokens=tokens[sequence.computed :],
        start=sequence.computed,
        pages=sequence.lease.table[: -(-len(tokens) // page_size)],
        sample=orders[0],
        guesses=tuple(orders[1:]),
    )


def _sample_order(sequence: Sequence, history: Tokens) -> SampleOrder:
    params = sequence.params
    banned = sequence.end_tokens if len(history) - sequence.prompt_len < params.min_tokens else ()
    return SampleOrder(
        params,
        sequence.seed,
        sequence.sample,
        sequence.prompt_len,
        history,
        banned,
        sequence.guide,
    )
