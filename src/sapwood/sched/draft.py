"""Speculation: guesses of what a sequence will say, which the model then checks several at a time.

    tree     what followed the very same tokens before, in this namespace (`PrefixCache.continuation`)
    own      what followed its latest tokens where they occurred in itself, not too long ago (`lookback`)
    replies  what followed them in the latest answers of this namespace

A draft is computed together with the last token, and drawn from row by row as long as what is drawn is what was
guessed (`plan.SequenceWork.guesses`). Draws are functions of logits and position, so the tokens are those that would
have been drawn one by one. After Leviathan et al., "Fast Inference from Transformers via Speculative Decoding"
(2023); with draws that are known functions there is nothing to reject at random.

How long a draft is follows from how often its source was right, from what a step of so many rows takes here
(`step_cost`), and from what may be lost (`credit`): as long as makes most tokens per second.

Drafts take what is left: of the step's budget after all other work, and of the pages that are free after all
admissions. Where nobody waits and fewer are free than AHEAD tokens need, the drafts of a step may together evict up
to so many. What is not used is given back with the step's result, free for the next tokens and drafts. So others
notice of them the time that a step takes, and that of what is cached up to AHEAD tokens more have been evicted than
answers needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Many
from dataclasses import dataclass

import numpy as np

from sapwood.cache import PrefixCache, Tokens
from sapwood.plan import SequenceWork, StepPlan
from sapwood.sched.credit import ALLOWANCE, Allowance, Credit, Record, Source
from sapwood.sched.guessing import Guessing
from sapwood.sched.lookback import last_occurrence
from sapwood.sched.replies import Replies
from sapwood.sched.sequence import Sequence
from sapwood.sched.step_cost import StepCost
from sapwood.sched.work import work_of
from sapwood.types import SeqId

LONGEST = 16
"""Guesses in one draft."""
_LENGTHS = (1, 2, 3, 4, 5, 6, 8, 11, LONGEST)
AHEAD = LONGEST
"""Tokens (in whole pages) that may be evicted for drafts before it is known whether they were right."""
_LEAST_GAIN = 1.02
"""Of tokens per second, for which a draft is worth it."""


@dataclass(frozen=True, slots=True, eq=False)
class Guess:
    """What may come next."""

    source: Source
    tokens: Tokens
    matched: int


@dataclass(slots=True)
class _Step:
    """The step that is being put together."""

    rows: int
    """Without drafts."""
    streams: int
    """Sequences that wait for it."""
    evictable: int = 0
    """Tokens that drafts may still evict."""
    drafted: int = 0
    gained: float = 0.0
    """Tokens that are expected of the drafts so far."""


@dataclass(frozen=True, slots=True)
class _Agreed:
    """A draft of this step, which is paid for."""

    source: Source
    streams: int


class Drafts:
    """What is guessed for all sequences, and what has become of it."""

    def __init__(self, cache: PrefixCache) -> None:
        self.cost = StepCost()
        self._cache = cache
        self._replies = Replies()
        self._step = _Step(1, 1)
        self._out: dict[SeqId, _Agreed] = {}
        self._allowance = Allowance()
        self._epoch = 0

    def works(
        self, decoding: Many[Sequence], reading: Many[int], budget: int, *, evicting: bool
    ) -> list[SequenceWork]:
        """Orders for those that decode, of at most `budget` tokens, with drafts where they are worth it.

        `reading` are the tokens that others read in this step. `evicting` says whether guesses may take any pages
        that the tree holds; nobody is ever preempted for them.
        """
        evictable = max(0, self._ahead() - self._cache.free) if evicting else 0
        self._step = _Step(len(decoding) + sum(reading), len(decoding) + len(reading), evictable)
        self._out.clear()
        if decoding:
            self._allowance.add(ALLOWANCE)
        left, works = budget - len(decoding), []
        for sequence in decoding:
            draft = self._with_pages(sequence, left)
            left -= len(draft)
            works.append(work_of(sequence, 1, self._cache.page_size, draft))
        return works

    def _ahead(self) -> int:
        size = self._cache.page_size
        return min(-(-AHEAD // size) * size, self._cache.room())

    def _with_pages(self, sequence: Sequence, most: int) -> Tokens:
        lease = sequence.lease
        assert lease is not None
        if sequence.computed < sequence.prompt_len:
            return sequence.tokens[:0]  # Its pages will be committed with this step, the prompt's alone.
        covered, free = lease.covered, self._cache.free
        places = covered - len(sequence) + free + self._step.evictable
        draft = self.draft(sequence, min(most, places, sequence.max_len - len(sequence) - 1))
        if len(draft):
            self._cache.grow(lease, len(sequence) + len(draft))
            self._step.evictable -= max(0, lease.covered - covered - free)
        return draft

    def draft(self, sequence: Sequence, most: int) -> Tokens:
        """At most `most` guesses for a sequence that lacks one token; mostly none."""
        if sequence.guessing is None:
            sequence.guessing = Guessing(Credit(self._allowance, self._record(sequence)))
        guess = self._guess(sequence, sequence.guessing, min(most, LONGEST)) if most > 0 else None
        if guess is None:
            return sequence.tokens[:0]
        credit, streams = sequence.guessing.credit, self._step.streams
        chance = credit.chance(guess.source, guess.matched)
        length = self._length(len(guess.tokens), chance, credit.balance(streams, chance))
        if length:
            credit.pay(self._price(length), streams)
            self._add(length, chance)
            self._out[sequence.id] = _Agreed(guess.source, streams)
        return guess.tokens[:length]

    def saw(self, plan: StepPlan, seconds: float) -> None:
        """How long a step took; of one that reads a prompt, or may find its last token read, it says nothing."""
        if all(map(_decodes, plan.works)):
            self.cost.saw(plan.tokens, seconds)

    def settle(self, sequence: Sequence, guessed: int, right: int) -> None:
        """What became of a draft of this step; the pages of wrong guesses are given back."""
        assert sequence.lease is not None
        assert sequence.guessing is not None
        self._cache.shrink(sequence.lease, sequence.computed)
        agreed = self._out.pop(sequence.id)
        sequence.guessing.credit.settle(agreed.source, guessed, right, agreed.streams)

    def admit(self, sequence: Sequence) -> None:
        """It begins."""
        sequence.epoch = self._epoch

    def remember(self, sequence: Sequence) -> None:
        """It has ended; nothing is kept of one that began before the last flush."""
        if sequence.epoch == self._epoch:
            self._replies.add(
                sequence.namespace, sequence.tokens, sequence.prompt_len, self._record(sequence)
            )

    def flush(self) -> None:
        """Forget what was said, also by those that are running."""
        self._replies.flush()
        self._epoch += 1

    def _record(self, sequence: Sequence) -> Record:
        """Of its namespace; of one that began before the last flush, its own."""
        if sequence.guessing is not None:
            return sequence.guessing.credit.namespace
        return self._replies.record(sequence.namespace) if sequence.epoch == self._epoch else Record()

    # ---- what -------------------------------------------------------------------------------------------

    def _guess(self, sequence: Sequence, guessing: Guessing, most: int) -> Guess | None:
        sources = self._sources(sequence, guessing, most)
        found = max(sources, key=lambda guess: guess.matched, default=None)
        if found is None:
            return None
        # An end token would end it: nothing is drawn behind it.
        ends = np.isin(found.tokens, sequence.end_tokens)
        length = int(ends.argmax()) if ends.any() else len(found.tokens)
        return Guess(found.source, found.tokens[:length], found.matched) if length else None

    def _sources(self, sequence: Sequence, guessing: Guessing, most: int) -> Iterator[Guess]:
        tokens = sequence.tokens
        if sequence.reads_cache and guessing.asks_the_tree(sequence.generated):
            ahead = self._cache.continuation(sequence.namespace, tokens, most)
            guessing.tree_told(sequence.generated, something=len(ahead) > 0)
            if len(ahead):
                yield Guess("tree", ahead, len(tokens))
                return
        guessing.pairs.learn(tokens[:-1])
        own = last_occurrence(tokens, tokens) if guessing.pairs.may_have_last_of(tokens) else None
        if own is not None:
            # What repeats itself may go on doing so.
            yield Guess("own", np.resize(tokens[own.end :][:most], most), own.length)
        if not sequence.reads_cache or not self._replies.may_go_on(sequence.namespace, tokens):
            return
        said = self._replies.of(sequence.namespace)
        before = last_occurrence(said, tokens)
        if before is not None:
            yield Guess("replies", said[before.end :][:most].copy(), before.length)

    # ---- how much ---------------------------------------------------------------------------------------

    def _length(self, most: int, chance: float, balance: float) -> int:
        """Of `most` guesses, as many as make most tokens per second, and can be paid for."""
        step, best = self._step, 0
        rows, tokens = step.rows + step.drafted, step.streams + step.gained
        best_rate = _LEAST_GAIN * tokens / self.cost.seconds(rows)
        for length in _lengths(most):
            expected = _expected(chance, length)
            rate = (tokens + expected) / self.cost.seconds(rows + length)
            if rate > best_rate and self._price(length) <= balance:
                best, best_rate = length, rate
        return best

    def _add(self, length: int, chance: float) -> None:
        self._step.drafted += length
        self._step.gained += _expected(chance, length)

    def _price(self, more: int) -> float:
        """What so many guesses more cost in this step, in tokens."""
        step, cost = self._step, self.cost
        rows = step.rows + step.drafted
        delay = cost.seconds(rows + more) - cost.seconds(rows)
        return step.streams * max(0.0, delay) / cost.seconds(step.rows)


def _decodes(work: SequenceWork) -> bool:
    order = work.sample
    return order is not None and order.prompt_len <= work.start and len(work.tokens) == 1 + len(work.guesses)


def _expected(chance: float, length: int) -> float:
    """Of so many guesses, the first right with this chance, how many are.

    One after a right one is wrong half as often: what was found is the right place, then.
    """
    after = (1 + chance) / 2
    return chance * length if after >= 1 else chance * (1 - after**length) / (1 - after)


def _lengths(most: int) -> Iterator[int]:
    yield from (length for length in _LENGTHS if length < most)
    yield min(most, LONGEST)
