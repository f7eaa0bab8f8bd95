from __future__ import annotations

import numpy as np
import pytest

from sapwood.cache import Namespace
from sapwood.sched import Sequence
from sapwood.types import Request, SamplingParams, SeqId


def sequence_of(prompt_len: int, said: int = 0, computed: int = 0) -> Sequence:
    prompt = np.arange(prompt_len, dtype=np.int32)
    request = Request("r", tuple(range(prompt_len)), SamplingParams(max_tokens=500))
    sequence = Sequence(SeqId(1), request, Namespace("m"), prompt, arrival=1, max_len=prompt_len + 500)
    for token in range(said):
        sequence.append(1000 + token)
    sequence.computed = computed
    return sequence


def test_to_drop_nothing_changes_nothing() -> None:
    """All is computed of one that draws nothing."""
    sequence = sequence_of(10, computed=10)
    sequence.drop(0)
    assert (len(sequence), sequence.computed, sequence.gap) == (10, 10, 0)


def test_what_is_dropped_was_not_computed() -> None:
    sequence = sequence_of(10, said=5, computed=14)
    sequence.drop(3)
    assert (len(sequence), sequence.computed, sequence.tokens[-1]) == (12, 11, 1001)


@pytest.mark.parametrize("said", [0, 3, 300])
def test_a_draft_stands_behind_the_tokens_until_one_is_appended(said: int) -> None:
    sequence = sequence_of(10, said)
    before = sequence.tokens
    draft = np.arange(50, 50 + 400, dtype=np.int32)
    with_it = sequence.with_draft(draft)
    assert with_it.tolist() == [*before.tolist(), *draft.tolist()]
    assert len(sequence) == 10 + said
    sequence.append(7)
    assert sequence.tokens.tolist() == [*before.tolist(), 7]
