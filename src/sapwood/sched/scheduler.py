"""Decides what the next step computes. Read this first.

There is no prefill phase and no decode phase: a sequence has tokens computed and tokens wanted, and a step
closes part of that gap under one token budget. The budget is spent in this order:

1. running sequences one token short of their end (they decode), oldest first; what 2. leaves of the budget
   may go to guesses of what they say next (`draft`, which says what others notice of them);
2. running sequences with a longer gap (their prompt is being read), and waiting ones, in the policy's order,
   while the pool can hold them. `share` says who reads how much: half goes to the oldest, and a short prompt
   need not wait for the end of a long one.

A waiting sequence is left out for a step if it does not fit, if no budget is left for it, or if another
computes just what it needs next (`in_flight`), so that a prompt that arrives many times at once is computed
once. Those behind it are admitted meanwhile (into free pages alone if it waits for pages and has a cached
prefix, which evicting for them could take), until it has been passed by the configured patience, or if it
was preempted: then the admission ends with it. `order.Gain` builds its bound on this. A step leaves out at
most LOOKUPS sequences and then ends the admission, so its cost is bounded however long the queue is. Who is
known to follow one that reads in this step is passed over without being looked at, and is not one of these:
what waits behind many followers is reached all the same.

Pages. Admission leases what the cache holds, then takes pages for everything the sequence has plus its
first new token, so reading a prompt never runs out of pages; decoding grows page by page. When it cannot,
the youngest running sequence is preempted: what it computed is committed and stays in the tree as
evictable, and it goes to the front of the queue with its tokens, so coming back is a hit. The oldest is
never preempted for another, so it always finishes: nobody is admitted whose whole length does not fit beside
the pins, and a pin is refused beside which one that has begun would not fit (`make_room_for_pins`; who asked
for as many tokens as fit gets those that do). Draws are keyed by position, so a preempted sequence's next
token is what it would have been.

Priorities. Under an order that preempts, read "the best priority, and of those the oldest" for "the oldest",
and the reverse for "the youngest". Before anything else those that wait with a better priority push back
those with a worse one (`victims`) if they do not fit otherwise. Only a strictly better one does, so no two
push each other back in turn; and what is left over never suffices for a victim, so it comes back in no step
in which it went.
"""

from __future__ import annotations

from collections import Counter

from sapwood.cache import PageIds, PrefixCache, ScoreStore
from sapwood.config import SchedulerConfig
from sapwood.errors import OutOfPagesError
from sapwood.plan import SequenceResult, SequenceWork, StepPlan, StepResult
from sapwood.sched.accounting import reuse_of
from sapwood.sched.beside_pins import make_room, reaches_its_end
from sapwood.sched.coast import Coast, coast_of
from sapwood.sched.draft import Drafts
from sapwood.sched.in_flight import InFlight, Overlap, follow
from sapwood.sched.letting_go import commit, release, vacate
from sapwood.sched.order import Order, order_for
from sapwood.sched.outcome import Admitted, Notice, Outcome, Refused
from sapwood.sched.sequence import Sequence
from sapwood.sched.share import Share
from sapwood.sched.victims import Displacement, Freed
from sapwood.sched.waiting import LOOKUPS, WaitingQueue
from sapwood.sched.work import work_of
from sapwood.types import SeqId


class Scheduler:
    """Owns every live sequence's lease. All methods are called between steps, by one thread.

    `order` overrides the configured policy. `reuse`: whether the cache has an index at all; without one every
    prompt token is accounted as `reuse_off`. `scores` are of prompts, kept to be read again; `drafts` are guesses.
    """

    def __init__(
        self,
        cache: PrefixCache,
        config: SchedulerConfig,
        order: Order | None = None,
        *,
        reuse: bool = True,
        scores: ScoreStore | None = None,
        drafts: Drafts | None = None,
    ) -> None:
        self._cache = cache
        self._reuse = reuse
        self._scores = scores if scores is not None and reuse else ScoreStore(0)
        self._drafts = drafts
        self._chunk_tokens = config.chunk_tokens
        self._max_running = config.max_running
        self._order = order if order is not None else order_for(config)
        self._queue = WaitingQueue(cache, self._order, config.patience_tokens)
        self._running: dict[SeqId, Sequence] = {}
        self._running_per_request: Counter[int] = Counter()
        self._notices: list[Notice] = []
        self._planned: StepPlan | None = None
        self._step = 0
        self.preemptions = 0

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def running_requests(self) -> int:
        """Of which a sequence is running."""
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
        vacate(self._cache, sequence)
        if self._drafts is not None:
            self._drafts.remember(sequence)
        return True

    abort = finish

    def make_room_for_pins(self, pinned: PageIds) -> Sequence | None:
        """Pins want these pages: see that all that have begun fit beside (`beside_pins`), or say who does not."""
        begun = [*self._running.values(), *self._queue.returning()]
        return make_room(self._cache, begun, pinned)

    def take_notices(self) -> tuple[Notice, ...]:
        """What `schedule` found out since the last call, in order."""
        notices = tuple(self._notices)
        self._notices.clear()
        return notices

    def schedule(self) -> StepPlan | None:
        """Orders for one step; None when there is nothing to compute. Must be followed by `apply`."""
        self._expect_between_steps("schedule")
        if self._order.preempts:
            self._make_way()
        decoding, reading = self._by_gap()
        decoding = self._decode(decoding)
        share = Share(self._chunk_tokens - len(decoding), [s for s in reading if s.id in self._running])
        self._admit(share)
        given = share.given()
        works = self._decoding_works(decoding, [tokens for _, tokens in given])
        works += [work_of(sequence, tokens, self._cache.page_size) for sequence, tokens in given]
        if not works:
            return None
        self._queue.charge((self._running[work.seq], len(work.tokens)) for work in works)
        self._step += 1
        self._planned = StepPlan(self._step, tuple(works), self._cache.flushes)
        return self._planned

    def coast(self) -> Coast | None:
        """Steps that need no orders, as all that they do is draw (`coast`); None if the next is not one."""
        self._expect_between_steps("coast")
        if self._drafts is not None or (self._order.preempts and self._may_displace()):
            return None
        ranked = sorted(self._running.values(), key=self._rank)
        return coast_of(self._cache, self._queue, ranked, self._chunk_tokens, self._max_running)

    def apply(self, result: StepResult, seconds: float = 0.0) -> list[Outcome]:
        """Take in a step's result: commit what was computed, append what was drawn. In the plan's order.

        `seconds` is how long the step took, 0 where nobody knows.
        """
        plan, self._planned = self._planned, None
        if plan is None or plan.step != result.step or len(plan.works) != len(result.results):
            raise ValueError(f"the result of step {result.step} does not answer {plan and plan.step}")
        if self._drafts is not None:
            self._drafts.saw(plan, seconds)
        return [self._apply_one(*pair) for pair in zip(plan.works, result.results, strict=True)]

    def _apply_one(self, work: SequenceWork, answer: SequenceResult) -> Outcome:
        sequence = self._running[work.seq]
        if answer.seq != work.seq:
            raise ValueError(f"a result for sequence {answer.seq} stands where {work.seq} was ordered")
        if answer.error is not None:
            # Its pages may hold anything: they are freed, never committed.
            self._unseat(sequence)
            release(self._cache, sequence)
            return Outcome(sequence, prompt_done=False, error=answer.error, dead_end=answer.dead_end)
        before, guessed = sequence.computed, len(work.guesses)
        sequence.computed = work.start + len(work.tokens) - guessed + len(answer.followed)
        if before < sequence.prompt_len or len(work.tokens) - guessed > 1:
            commit(self._cache, sequence)
        if sequence.scores is not None and answer.scores:
            sequence.scores.add(answer.scores)
            sequence.scores.keep(self._scores)
        drawn = () if answer.drawn is None else (answer.drawn, *answer.followed)
        for entry in drawn:
            sequence.append(entry.token)
        if guessed and self._drafts is not None:
            self._drafts.settle(sequence, guessed, len(answer.followed))
        prompt_done = before < sequence.prompt_len <= sequence.computed
        return Outcome(sequence, prompt_done, len(work.tokens), drawn, guessed)

    # ---- running sequences -------------------------------------------------------------------------------

    def _rank(self, sequence: Sequence) -> tuple[int, int, int]:
        """Sorts those first that are served first and preempted last."""
        priority = sequence.request.priority if self._order.preempts else 0
        return (priority, sequence.arrival, sequence.sample)

    def _by_gap(self) -> tuple[list[Sequence], list[Sequence]]:
        ranked = sorted(self._running.values(), key=self._rank)
        return [s for s in ranked if s.gap == 1], [s for s in ranked if s.gap > 1]

    def _decode(self, ready: list[Sequence]) -> list[Sequence]:
        """Those of them that do, with a page for the token that comes next."""
        decoding: list[Sequence] = []
        for sequence in ready:
            if len(decoding) == self._chunk_tokens:
                break
            if sequence.id in self._running and self._grow_or_preempt(sequence):
                decoding.append(sequence)
        return decoding

    def _decoding_works(self, decoding: list[Sequence], reading: list[int]) -> list[SequenceWork]:
        if self._drafts is None:
            return [work_of(sequence, 1, self._cache.page_size) for sequence in decoding]
        left = self._chunk_tokens - sum(reading)
        return self._drafts.works(decoding, reading, left, evicting=not len(self._queue))

    def _grow_or_preempt(self, sequence: Sequence) -> bool:
        """Make its lease cover all its tokens, preempting the last in rank until it does. False if it went."""
        assert sequence.lease is not None
        while sequence.lease.covered < len(sequence):
            try:
                self._cache.grow(sequence.lease, len(sequence))
            except OutOfPagesError:
                victim = max(self._running.values(), key=self._rank)
                self._preempt(victim)
                if victim is sequence:
                    return False
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self._unseat(sequence)
        self._queue.put_back(sequence)  # First: what it lets go of is still waited for.
        vacate(self._cache, sequence)
        sequence.computed = 0
        sequence.preemptions += 1
        self.preemptions += 1

    # ---- admission ---------------------------------------------------------------------------------------

    def _make_way(self) -> None:
        """Seat those that wait with a better priority than some that run, and do not fit beside these."""
        if not self._may_displace():
            return
        left_out, freed = 0, Freed(self._cache)
        for sequence in self._queue.in_order():
            priority = sequence.request.priority
            worse = [s for s in self._running.values() if s.request.priority > priority]
            others = [s for s in self._running.values() if s.request.priority <= priority]
            if not worse or sum(s.gap for s in others) >= self._chunk_tokens:
                return  # There is nobody to preempt; or it would not be read in this step anyway.
            running = self._running.values()
            self._look(sequence)
            displacement = Displacement(self._cache, sequence, running, self._max_running, freed)
            if displacement.suffices([]):
                return
            overlap = self._overlap(InFlight(self._cache, others), sequence, self._matched(sequence))
            victims = displacement.victims(sorted(worse, key=self._rank, reverse=True))
            if victims is not None and not self._follows(sequence, overlap):
                freed = Freed(self._cache)
                for victim in victims:
                    self._preempt(victim)
                if self._start(sequence, self._matched(sequence), overlap) is not None:
                    return  # Somebody else holds pages that the victims held.
            elif self._queue.at_front(sequence) or (left_out := left_out + 1) == LOOKUPS:
                return

    def _may_displace(self) -> bool:
        if not self._running or not len(self._queue):
            return False
        return self._queue.best_priority() < max(s.request.priority for s in self._running.values())

    def _admit(self, share: Share) -> None:
        """Seat waiting sequences while budget, seats and pages allow."""
        if not len(self._queue) or not share.open or len(self._running) >= self._max_running:
            return
        in_flight = InFlight(self._cache, [sequence for sequence, _ in share.given()])
        left_out, evicting = 0, True
        for sequence in self._queue.in_order(in_flight.committed()):
            overlap = self._overlap(in_flight, sequence, matched := self._matched(sequence))
            if self._follows(sequence, overlap):
                pass
            elif share.offer(len(sequence) - matched):
                if self._settle(sequence, matched, overlap, evicting=evicting):
                    if sequence.lease is not None:
                        share.admit(sequence)
                        in_flight.add(sequence)
                    if not share.open or len(self._running) >= self._max_running:
                        break
                    continue
                evicting = evicting and matched == 0
            left_out += 1
            if self._queue.ends_admission(sequence, left_out):
                break

    def _follows(self, sequence: Sequence, overlap: Overlap) -> bool:
        if follow(sequence, overlap, self._cache.now):
            self._queue.follow(sequence, sequence.follows)
            return True
        if sequence.follows is not None:
            self._queue.follow(sequence, None)
        return False

    def _matched(self, sequence: Sequence) -> int:
        """Tokens of it that the cache holds and it may read."""
        if not sequence.reads_cache:
            return 0
        self._look(sequence)
        return self._cache.match(sequence.namespace, sequence.tokens[: sequence.readable]).tokens

    def _look(self, sequence: Sequence) -> None:
        if sequence.scores is not None and sequence.reads_cache:
            sequence.scores.look(self._scores)

    def _overlap(self, in_flight: InFlight, sequence: Sequence, matched: int) -> Overlap:
        return in_flight.overlap(sequence, matched) if self._reuse else Overlap()

    def _settle(self, sequence: Sequence, matched: int, overlap: Overlap, *, evicting: bool) -> bool:
        """Seat it, or drop it if it can never be seated. False if it has to wait."""
        shortage = self._start(sequence, matched, overlap, evicting=evicting)
        if shortage is not None:
            if self._running:
                return False
            # Nothing runs that could free a page later: waiting would be for ever.
            self._refuse(sequence, shortage)
        return True

    def _refuse(self, sequence: Sequence, reason: str) -> None:
        self._queue.remove(sequence.id)
        self._notices.append(Refused(sequence, reason))

    def _start(
        self, sequence: Sequence, matched: int, overlap: Overlap, *, evicting: bool = True
    ) -> str | None:
        """Lease its prefix, take the pages it needs next, seat it. Or say what is missing, and change nothing.

        `evicting` says whether these may be pages that the tree holds. One that could not reach its end beside
        the pins is refused at once: nothing that runs could give it the room.
        """
        limit = sequence.readable
        needed = sequence.wanted - matched
        room = (
            self._cache.room_beside(sequence.namespace, sequence.tokens, limit)
            if evicting
            else self._cache.free
        )
        if needed > room:
            return (
                f"it needs pages for {needed} more tokens, but {room} tokens' worth can be given of the "
                f"pool's {self._cache.capacity_pages * self._cache.page_size}; pins hold the rest"
            )
        if not reaches_its_end(self._cache, sequence, self._running.values(), limit):
            self._refuse(sequence, "its whole length does not fit into the pool beside what pins hold")
            return None
        if sequence.reuse is None:
            self._account(sequence, overlap.tokens)
            if self._drafts is not None:
                self._drafts.admit(sequence)
        if sequence.scores is not None:
            sequence.scores.begin(self._scores)
            if sequence.reads_cache:
                sequence.scores.take(self._scores)
        sequence.lease = self._cache.lease(sequence.namespace, sequence.tokens, limit)
        self._cache.grow(sequence.lease, sequence.wanted)
        sequence.computed = sequence.lease.matched
        self._queue.admit(sequence)
        self._seat(sequence)
        return None

    def _account(self, sequence: Sequence, in_flight: int) -> None:
        """Once per sequence: what is read again after a preemption is nobody's hit or miss."""
        sequence.reuse = reuse_of(self._cache, sequence, in_flight, indexed=self._reuse)
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

    def _expect_between_steps(self, verb: str) -> None:
        if self._planned is not None:
            raise RuntimeError(f"{verb}() was called while step {self._planned.step} is out; apply it first")
