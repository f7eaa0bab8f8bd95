"""What is guessed, from where, and how much of it. How it is checked and paid for: tests/engine/test_speculation.py."""

from __future__ import annotations

import numpy as np
import pytest

from cache.helpers import span, store, toks
from sapwood.cache import Namespace, PrefixCache
from sapwood.config import CacheConfig, SchedulerConfig
from sapwood.plan import SampleOrder, SequenceResult, SequenceWork, StepPlan, StepResult
from sapwood.sched import Drafts, Scheduler, Sequence
from sapwood.sched.credit import ALLOWANCE, FIRST
from sapwood.sched.draft import AHEAD, LONGEST
from sapwood.types import Request, SamplingParams, SeqId, TokenLogprob

A, B = Namespace("m", tenant="a"), Namespace("m", tenant="b")


def sequence_of(
    prompt: list[int],
    said: list[int],
    *,
    namespace: Namespace = A,
    ends: tuple[int, ...] = (),
    reuse: bool = True,
) -> Sequence:
    request = Request("r", tuple(prompt), SamplingParams(max_tokens=500), reuse=reuse)
    tokens = np.array(prompt, np.int32)
    sequence = Sequence(SeqId(1), request, namespace, tokens, arrival=1, max_len=1000, end_tokens=ends)
    for token in said:
        sequence.append(token)
    return sequence


def drafts_with(cache: PrefixCache, slope: float = 0.1, streams: int = 1) -> Drafts:
    """Where a further row costs `slope` of a step."""
    drafts = Drafts(cache)
    for rows in range(1, 65):
        drafts.cost.saw(rows, 1 + slope * (rows - streams))
    drafts.works([], [1] * streams, 0, evicting=True)
    return drafts


def test_the_tree_comes_first_then_the_longest_agreement() -> None:
    cache = PrefixCache(256, CacheConfig())
    sequence = sequence_of([*range(10), 50, 51, 52, 99, 51, 52], [7])
    store(cache, np.append(sequence.tokens, span(200, 220)), A)
    assert drafts_with(cache).draft(sequence, 16).tolist()[:3] == [200, 201, 202]
    own = sequence_of([1, 2, 3, 4, 5, 6, 30, 31, 32], [1, 2, 3, 4, 5])
    assert drafts_with(cache).draft(own, 16).tolist()[:2] == [6, 30]


def test_what_repeats_itself_is_guessed_to_go_on() -> None:
    cache = PrefixCache(256)
    drafts = drafts_with(cache, 0.01)
    assert drafts.draft(sequence_of([9], [1, 2] * 8), 5).tolist() == [1, 2, 1, 2, 1]


def test_answers_of_the_same_namespace_are_guessed_from() -> None:
    cache = PrefixCache(256)
    drafts = drafts_with(cache)
    drafts.remember(sequence_of([1, 2, 3, 4], [10, 11, 12, 13, 14, 15]))
    front = ([80, 1, 2, 3, 4], [10, 11])
    assert drafts.draft(sequence_of(*front), 3).tolist() == [12, 13, 14]
    assert drafts.draft(sequence_of(*front, namespace=B), 3).tolist() == []
    assert drafts.draft(sequence_of(*front, reuse=False), 3).tolist() == []
    drafts.flush()
    assert drafts.draft(sequence_of(*front), 3).tolist() == []


def test_what_began_before_a_flush_is_not_remembered() -> None:
    drafts = drafts_with(PrefixCache(256))
    front = ([80, 1, 2, 3, 4], [10, 11])
    old, new = (sequence_of([1, 2, 3, 4], [10, 11, 12, 13, 14, 15]) for _ in range(2))
    drafts.admit(old)
    drafts.flush()
    drafts.admit(new)
    drafts.remember(old)
    begins = sequence_of(*front)
    drafts.admit(begins)
    assert drafts.draft(begins, 3).tolist() == []
    drafts.remember(new)
    assert drafts.draft(begins, 3).tolist() == [12, 13, 14]


def test_how_often_guesses_were_right_before_a_flush_is_not_known_after_it() -> None:
    """Not even what one that runs on finds out."""
    drafts = drafts_with(PrefixCache(256))
    for each in (old := sequence_of([1, 2], [10, 11]), sequence_of([1, 2], [10, 11])):
        drafts.admit(each)
        drafts.draft(each, 1)
        drafts.remember(each)
    before = old.guessing
    assert before is not None
    drafts.flush()
    late, new = sequence_of([1, 2], [10, 11]), sequence_of([1, 2], [10, 11])
    drafts.admit(new)
    for each in (new, late):
        drafts.draft(each, 1)
    drafts.remember(new)
    drafts.admit(newest := sequence_of([1, 2], [10, 11]))
    drafts.draft(newest, 1)
    assert new.guessing is not None
    assert late.guessing is not None
    assert newest.guessing is not None
    assert newest.guessing.credit.namespace is new.guessing.credit.namespace
    assert late.guessing.credit.namespace is not new.guessing.credit.namespace
    assert before.credit.namespace is not new.guessing.credit.namespace


@pytest.mark.parametrize("page_size", [1, 4, 16, 64])
@pytest.mark.parametrize("evicting", [True, False])
def test_drafts_evict_no_more_than_a_few_tokens_ahead(page_size: int, *, evicting: bool) -> None:
    """Of another's cached prefix, where the pool is full, however many draft and however often they are wrong."""
    cache = PrefixCache(1024 // page_size, CacheConfig(page_size=page_size))
    drafts = drafts_with(cache, 0.001)
    sequences = [sequence_of([9, *range(100 * n, 100 * n + 62)], [7]) for n in range(1, 5)]
    leases = []
    for number, sequence in enumerate(sequences):
        sequence.id = SeqId(number)
        store(cache, np.append(sequence.tokens, span(200, 264)), A)
        lease = sequence.lease = cache.lease(A, toks())
        leases.append(lease)
        cache.grow(lease, 64)
        sequence.computed = 63
    store(cache, span(3000, 3000 + cache.free), B)
    assert cache.free == 0
    evicted, ahead = cache.books().evicted_tokens, -(-AHEAD // page_size) * page_size
    most = 0
    for _ in range(5):
        works = drafts.works(sequences, [], 200, evicting=evicting)
        most = max(most, sum(len(work.guesses) for work in works))
        for sequence, work in zip(sequences, works, strict=True):
            if work.guesses:
                drafts.settle(sequence, len(work.guesses), 0)
        assert cache.books().evicted_tokens - evicted <= ahead * evicting
    assert (most > 0) == evicting
    for lease in leases:
        cache.release(lease)


def test_nothing_is_guessed_from_an_end_on() -> None:
    cache = PrefixCache(256)
    sequence = sequence_of([1, 2, 3], [4], ends=(202, 90))
    store(cache, np.append(sequence.tokens, span(200, 220)), A)
    assert drafts_with(cache).draft(sequence, 16).tolist() == [200, 201]
    at_once = sequence_of([1, 2, 3], [4], ends=(200,))
    assert drafts_with(cache).draft(at_once, 16).tolist() == []


def test_the_cheaper_rows_are_the_longer_are_drafts() -> None:
    cache = PrefixCache(256)
    sequence = sequence_of([1, 2, 3], [4])
    store(cache, np.append(sequence.tokens, span(200, 240)), A)
    lengths = [len(drafts_with(cache, slope).draft(sequence, 99)) for slope in (0.01, 0.05, 0.2, 0.5, 0.9)]
    assert lengths[0] == LONGEST
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] <= 1


def test_what_rows_cost_is_learned_where_answers_go_on_and_nowhere_else() -> None:
    """A step that ends a prompt may be a repeat's, which computes nothing: it would make a row look cheap."""
    drafts = Drafts(PrefixCache(256))

    def work(prompt_len: int, tokens: int = 1) -> SequenceWork:
        history = span(0, 10)
        order = SampleOrder(SamplingParams(), 0, 0, prompt_len, history)
        return SequenceWork(SeqId(1), history[10 - tokens :], 10 - tokens, history, order)

    drafts.saw(StepPlan(1, (work(8),)), 4.0)
    for other in (work(10), work(8, tokens=2)):
        drafts.saw(StepPlan(1, (other,)), 1.0)
        drafts.saw(StepPlan(1, (work(8), other)), 1.0)
    assert drafts.cost.seconds(1) == 4.0
    assert drafts.cost.seconds(2) > 4.0


def test_more_is_dared_the_more_was_right() -> None:
    cache = PrefixCache(256)
    sequence = sequence_of([1, 2, 3], [4])
    lease = sequence.lease = cache.lease(A, toks())
    cache.grow(lease, 40)
    store(cache, np.append(sequence.tokens, span(200, 240)), A)
    drafts = drafts_with(cache, 0.3)
    lengths = []
    for _ in range(6):
        drafts.works([], [1], 0, evicting=True)
        lengths.append(len(drafts.draft(sequence, 99)))
        drafts.settle(sequence, lengths[-1], lengths[-1])
    assert lengths == sorted(lengths)
    assert lengths[0] <= 3
    assert lengths[-1] == LONGEST
    for _ in range(12):
        drafts.works([], [1], 0, evicting=True)
        lengths.append(len(drafts.draft(sequence, 99)))
        drafts.settle(sequence, lengths[-1], 0)
    assert lengths[-1] <= 1
    cache.release(lease)


@pytest.mark.parametrize("streams", [1, 8])
def test_where_many_wait_for_a_step_a_guess_must_be_worth_more(streams: int) -> None:
    cache = PrefixCache(256)
    sequence = sequence_of([1, 2, 3], [4])
    store(cache, np.append(sequence.tokens, span(200, 240)), A)
    draft = drafts_with(cache, 0.2, streams).draft(sequence, 99)
    assert (len(draft) > 0) == (streams == 1), "one more row delays eight by a fifth of a step"


def test_a_long_stream_is_hardly_slower_beside_endless_short_ones_whose_guesses_are_wrong() -> None:
    """Each in a salt of its own, so that nothing is learned from those before."""
    slope, others, said = 0.12, 7, 200
    cache = PrefixCache(20_000)
    drafts = drafts_with(cache, slope)
    scheduler = Scheduler(cache, SchedulerConfig(max_running=8), drafts=drafts)
    stream = sequence_of([*range(1000, 1005)], [])
    scheduler.add(stream)
    live: dict[SeqId, Sequence] = {}
    number, lost, guesses = 1, 0.0, 0
    while stream.generated < said:
        while len(live) < others:
            number += 1
            begins = sequence_of(
                [number, *[1, 2, 3, 4, 5] * 3], [], namespace=Namespace("m", salt=str(number))
            )
            begins.id, begins.arrival, begins.max_len = SeqId(number), number, 16 + 8
            live[begins.id] = begins
            scheduler.add(begins)
        plan = scheduler.schedule()
        assert plan is not None
        rows = sum(len(work.tokens) - len(work.guesses) for work in plan.works)
        wrong = plan.tokens - rows
        guesses += wrong
        lost += slope * wrong / (1 + slope * (rows - 1))
        answers = tuple(_repeats(work, stream.generated) for work in plan.works)
        for outcome in scheduler.apply(StepResult(plan.step, answers)):
            if not outcome.sequence.draws and outcome.sequence.id in live:
                del live[outcome.sequence.id]
                scheduler.finish(outcome.sequence.id)
    assert guesses > 0
    assert lost <= 1.1 * (FIRST + ALLOWANCE * said)


def _repeats(work: SequenceWork, step: int) -> SequenceResult:
    """Says what was said before, but where it was guessed."""
    if work.sample is None:
        return SequenceResult(work.seq)
    said = 10_000 + step if work.seq == 1 or work.guesses else int(work.sample.history[-5])
    return SequenceResult(work.seq, TokenLogprob(said, 0.0))
