"""Decides what the next step computes. Read this first.

There is no prefill phase and no decode phase: a sequence has tokens computed and tokens wanted, and a step
closes part of that gap under one token budget. The budget is spent in this order:

1. running sequences one token short of their end (they decode), oldest first;
2. running sequences with a longer gap (their prompt is being read), oldest first;
3. waiting sequences, in the policy's order, while the pool can hold them. The first that does not fit ends
   the admission: what is behind it in that order does not overtake it. `order.Gain` builds its bound on this.

A waiting sequence is left out for a step in which another computes just what it needs next (`in_flight`),
so that a prompt that arrives many times at once is computed once. Those behind it are admitted meanwhile,
unless it stands at the front of the order. A step leaves out at most LOOKUPS sequences and then ends the
admission, so the comparisons are bounded however long the queue is.

Pages. Admission leases what the cache holds, then takes pages for everything the sequence has plus its
first new token, so reading a prompt never runs out of pages; decoding grows page by page. When it cannot,
the youngest running sequence is preempted: what it computed is committed and stays in the tree as
evictable, and it goes to the front of the queue with its tokens, so coming back is a hit. The oldest is
never preempted for another, so it always finishes. Draws are keyed by position, so a preempted sequence's
next token is what it would have been.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from sapwood.cache import PrefixCache
from sapwood.config import SchedulerConfig
from sapwood.errors import OutOfPagesError
from sapwood.plan import SampleOrder, SequenceResult, SequenceWork, StepPlan, StepResult
from sapwood.sched.accounting import account, account_unread
from sapwood.sched.in_flight import InFlight, Overlap, may_follow
from sapwood.sched.order import Order, order_for
from sapwood.sched.sequence import Sequence
from sapwood.sched.waiting import LOOKUPS, WaitingQueue
from sapwood.types import SeqId, TokenLogprob


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
    drawn: TokenLogprob | None = None
    error: str | None = None
    """It failed; the scheduler has already dropped it."""


class Scheduler:
    """Owns every live sequence's lease. All methods are called between steps, by one thread.

    `order` overrides the configured policy. `reuse` says whether the cache has an index at all; without one
    every prompt token is accounted as `reuse_off`.
    """

    def __init__(
        self, cache: PrefixCache, config: SchedulerConfig, order: Order | None = None, *, reuse: bool = True
    ) -> None:
        self._cache = cache
        self._reuse = reuse
        self._chunk_tokens = config.chunk_tokens
        self._max_running = config.max_running
        self._queue = WaitingQueue(cache, order if order is not None else order_for(config))
        self._running: dict[SeqId, Sequence] = {}
        self._running_per_request: Counter[int] = Counter()
        self._notices: list[Notice] = []
        self._planned: StepPlan | None = None
        self._step = 0
        self._preemptions = 0

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def preemptions(self) -> int:
        return self._preemptions

    @property
    def running_requests(self) -> int:
        """Requests of which a sequence is running."""
        return len(self._running_per_request)

    def add(self, sequence: Sequence) -> None:
        self._queue.add(sequence)

    def finish(self, seq: SeqId) -> bool:
        """Let go of a sequence in any state; what it computed stays in the tree. False if it is not here.

        Ending early (a client that left) and ending normally are the same to the pages.
        """
        self._expect_between_steps("finish")
        if self._queue.remove(seq):
            return True
        sequence = self._running.get(seq)
        if sequence is None:
            return False
        self._unseat(sequence)
        self._vacate(sequence)
        return True

    abort = finish

    def take_notices(self) -> tuple[Notice, ...]:
        """What `schedule` found out since the last call, in order."""
        notices = tuple(self._notices)
        self._notices.clear()
        return notices

    def schedule(self) -> StepPlan | None:
        """Orders for one step; None when there is nothing to compute. Must be followed by `apply`."""
        self._expect_between_steps("schedule")
        budget = self._chunk_tokens
        works: list[SequenceWork] = []
        decoding, reading = self._by_gap()
        for sequence in decoding:
            if budget == 0:
                break
            if sequence.id in self._running and self._grow_or_preempt(sequence):
                works.append(self._work(sequence, 1))
                budget -= 1
        for sequence in reading:
            if budget > 0 and sequence.id in self._running:
                works.append(self._work(sequence, min(sequence.gap, budget)))
                budget -= len(works[-1].tokens)
        works.extend(self._admit(budget))
        if not works:
            return None
        self._queue.charge((self._running[work.seq], len(work.tokens)) for work in works)
        self._step += 1
        self._planned = StepPlan(self._step, tuple(works))
        return self._planned

    def apply(self, result: StepResult) -> list[Outcome]:
        """Take in a step's result: commit what was computed, append what was drawn. In the plan's order."""
        plan, self._planned = self._planned, None
        if plan is None or plan.step != result.step or len(plan.works) != len(result.results):
            raise ValueError(
                f"the result of step {result.step} does not answer the plan {plan and plan.step}"
            )
        pairs = zip(plan.works, result.results, strict=True)
        return [self._apply_one(work, answer) for work, answer in pairs]

    def _apply_one(self, work: SequenceWork, answer: SequenceResult) -> Outcome:
        sequence = self._running[work.seq]
        if answer.seq != work.seq:
            raise ValueError(f"a result for sequence {answer.seq} stands where {work.seq} was ordered")
        if answer.error is not None:
            # Its pages may hold anything: they are freed, never committed.
            self._unseat(sequence)
            self._release(sequence)
            return Outcome(sequence, prompt_done=False, error=answer.error)
        before = sequence.computed
        sequence.computed = work.start + len(work.tokens)
        sequence.scores.extend(answer.scores)
        if before < sequence.prompt_len or len(work.tokens) > 1:
            self._commit(sequence)
        if answer.drawn is not None:
            sequence.append(answer.drawn.token)
        prompt_done = before < sequence.prompt_len <= sequence.computed
        return Outcome(sequence, prompt_done, len(work.tokens), answer.drawn)

    # ---- running sequences -------------------------------------------------------------------------------

    def _by_gap(self) -> tuple[list[Sequence], list[Sequence]]:
        oldest_first = sorted(self._running.values(), key=lambda s: s.age)
        return [s for s in oldest_first if s.gap == 1], [s for s in oldest_first if s.gap > 1]

    def _grow_or_preempt(self, sequence: Sequence) -> bool:
        """Make its lease cover all its tokens, preempting the youngest until it does. False if it went."""
        assert sequence.lease is not None
        while sequence.lease.covered < len(sequence):
            try:
                self._cache.grow(sequence.lease, len(sequence))
            except OutOfPagesError:
                victim = max(self._running.values(), key=lambda s: s.age)
                self._preempt(victim)
                if victim is sequence:
                    return False
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self._unseat(sequence)
        self._vacate(sequence)
        sequence.computed = 0
        if sequence.scoring:
            sequence.scores.clear()  # Its prompt is read from the start again.
        sequence.preemptions += 1
        self._queue.put_back(sequence)
        self._preemptions += 1

    def _work(self, sequence: Sequence, count: int) -> SequenceWork:
        """Compute the next `count` tokens; the work that reaches the end also draws."""
        assert sequence.lease is not None
        start, end = sequence.computed, sequence.computed + count
        score = sequence.request.params.prompt_logprobs if sequence.scoring else None
        targets = sequence.tokens[start + 1 : min(end + 1, sequence.prompt_len)]
        return SequenceWork(
            seq=sequence.id,
            tokens=sequence.tokens[start:end],
            start=start,
            pages=sequence.lease.table[: -(-end // self._cache.page_size)],
            sample=_sample_order(sequence) if end == len(sequence) and sequence.draws else None,
            score=score,
            score_targets=None if score is None else targets,
        )

    # ---- admission ---------------------------------------------------------------------------------------

    def _admit(self, budget: int) -> Iterable[SequenceWork]:
        """Start waiting sequences while budget, seats and pages allow; yields their first work."""
        if budget == 0 or len(self._running) >= self._max_running:
            return
        in_flight, followers = self._in_flight(), 0
        for sequence in self._queue.in_order():
            if budget == 0 or len(self._running) >= self._max_running or followers == LOOKUPS:
                return
            overlap = in_flight.overlap(sequence) if self._reuse else Overlap()
            if overlap.worthwhile and may_follow(sequence):
                sequence.followed += overlap.tokens
                followers += 1
                if self._queue.at_front(sequence):
                    return
                continue
            shortage = self._start(sequence, overlap)
            if shortage is not None and self._running:
                return
            self._queue.remove(sequence.id)
            if shortage is not None:
                # Nothing runs that could free a page later: waiting would be for ever.
                self._notices.append(Refused(sequence, shortage))
                continue
            self._seat(sequence)
            in_flight.add(sequence)
            yield (work := self._work(sequence, min(sequence.gap, budget)))
            budget -= len(work.tokens)

    def _in_flight(self) -> InFlight:
        in_flight = InFlight(self._cache)
        for sequence in self._running.values():
            in_flight.add(sequence)
        return in_flight

    def _start(self, sequence: Sequence, overlap: Overlap) -> str | None:
        """Lease its prefix and take the pages it needs next. Or say what is missing, and change nothing."""
        wanted = min(len(sequence) + 1, sequence.most_computed)
        # The last token is always computed: its logits are drawn from.
        limit = len(sequence) - 1 if sequence.reads_cache else 0
        needed = wanted - self._cache.match(sequence.namespace, sequence.tokens[:limit]).tokens
        room = self._cache.room_beside(sequence.namespace, sequence.tokens, limit)
        if needed > room:
            return (
                f"it needs pages for {needed} more tokens, but {room} tokens' worth can be given of the "
                f"pool's {self._cache.capacity_pages * self._cache.page_size}; leases outside the queue hold the rest"
            )
        sequence.lease = self._cache.lease(sequence.namespace, sequence.tokens, limit)
        self._cache.grow(sequence.lease, wanted)
        sequence.computed = sequence.lease.matched
        if sequence.reuse is None:
            self._account(sequence, sequence.lease.matched, overlap.tokens)
        return None

    def _account(self, sequence: Sequence, matched: int, in_flight: int) -> None:
        """Once per sequence: what is read again after a preemption is nobody's hit or miss."""
        if sequence.reads_cache and self._reuse:
            sequence.reuse = account(sequence.prompt_len, matched, self._cache.page_size, in_flight)
        else:
            sequence.reuse = account_unread(sequence.prompt_len)
        self._notices.append(Admitted(sequence))

    # ---- seats and leases ------------------------------------------------------------------------------------

    def _seat(self, sequence: Sequence) -> None:
        self._running[sequence.id] = sequence
        self._running_per_request[sequence.arrival] += 1

    def _unseat(self, sequence: Sequence) -> None:
        del self._running[sequence.id]
        self._running_per_request[sequence.arrival] -= 1
        if self._running_per_request[sequence.arrival] == 0:
            del self._running_per_request[sequence.arrival]

    def _commit(self, sequence: Sequence) -> None:
        assert sequence.lease is not None
        self._cache.commit(sequence.lease, sequence.tokens[: sequence.computed])

    def _vacate(self, sequence: Sequence) -> None:
        self._commit(sequence)
        self._release(sequence)

    def _release(self, sequence: Sequence) -> None:
        assert sequence.lease is not None
        self._cache.release(sequence.lease)
        sequence.lease = None

    def _expect_between_steps(self, verb: str) -> None:
        if self._planned is not None:
            raise RuntimeError(
                f"{verb}() was called while step {self._planned.step} is out; apply its result first"
            )


def _sample_order(sequence: Sequence) -> SampleOrder:
    params = sequence.request.params
    banned = sequence.end_tokens if sequence.generated < params.min_tokens else ()
    return SampleOrder(params, sequence.seed, sequence.sample, sequence.prompt_len, sequence.tokens, banned)
