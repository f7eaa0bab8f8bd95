"""What a step is ordered to do for one sequence."""

from __future__ import annotations

from sapwood.plan import SampleOrder, SequenceWork
from sapwood.sched.sequence import Sequence


def work_of(sequence: Sequence, count: int, page_size: int) -> SequenceWork:
    """Compute the next `count` tokens of one that has a lease; the work that reaches the end also draws."""
    assert sequence.lease is not None
    start, end = sequence.computed, sequence.computed + count
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
        sample=_sample_order(sequence) if end == len(sequence) and sequence.draws else None,
        score=scores.top if scores is not None and scoring else None,
        score_targets=targets if scoring else None,
        score_skip=unscored - 1 - start if scoring else 0,
    )


def _sample_order(sequence: Sequence) -> SampleOrder:
    params = sequence.params
    banned = sequence.end_tokens if sequence.generated < params.min_tokens else ()
    return SampleOrder(
        params,
        sequence.seed,
        sequence.sample,
        sequence.prompt_len,
        sequence.tokens,
        banned,
        sequence.guide,
    )
