"""One engine on a virtual clock: the real scheduler and cache, steps that take what a cost model says.

The verbs are the engine's (`engine/engine.py`), called in its order: requests are let in between steps, a step is
scheduled at the time at which it begins, and its result applied at the time at which its tokens exist.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from sapwood.cache import PrefixCache, Tokens
from sapwood.errors import ContextLengthError
from sapwood.plan import StepPlan
from sapwood.routing import Candidate
from sapwood.sched import Bounds, Drafts, Outcome, Refused, Scheduler, Sequence
from sapwood.sim.cost import CostModel, StepShape
from sapwood.sim.foretold import Foretold
from sapwood.sim.record import Record
from sapwood.sim.replay import pass_through
from sapwood.sim.setup import Setup
from sapwood.sim.visit import Asked, Visit
from sapwood.types import Request, SamplingParams, SeqId


@dataclass(slots=True)
class _Live:
    """A request that was let in and has not ended."""

    visit: Visit
    arrival: int
    max_len: int
    reading: float
    """Seconds that its prompt will take, as far as is known; 0 once it is read."""
    samples: list[Sequence] = field(default_factory=list)
    """That have begun, also those that have ended."""
    ended: int = 0
    """Samples."""

    @property
    def over(self) -> bool:
        return self.ended == self.visit.samples


class Replica:
    """`coasting` takes steps in which nothing happens without orders for each; what comes out is the same."""

    def __init__(
        self, number: int, setup: Setup, cost: CostModel, record: Record, *, coasting: bool = True
    ) -> None:
        self.number = number
        self.cache = PrefixCache(setup.pages, setup.cache)
        self._drafts = Drafts(self.cache) if setup.scheduler.speculate == "auto" else None
        self.scheduler = Scheduler(
            self.cache,
            setup.scheduler,
            reuse=setup.cache.prefix_index != "none",
            drafts=self._drafts,
        )
        self._bounds = Bounds(setup.longest, setup.pages * setup.cache.page_size)
        self._cost = cost
        self._record = record
        self._coasting = coasting
        self._tokens: dict[SeqId, Tokens] = {}
        self._runner = Foretold(self._tokens)
        self._live: dict[SeqId, _Live] = {}
        """By each sample that has begun and not ended."""
        self._turned_away: list[Refused] = []
        self._door: list[Visit] = []
        self._refused: list[Visit] = []
        self._plan: StepPlan | None = None
        self._ends = 0.0
        self._let_in = self._begun = 0

    @property
    def stepping(self) -> bool:
        """Whether a step has begun and not ended."""
        return self._plan is not None

    def candidate(self, now: float) -> Candidate:
        """What a router is told. The wait is for the running step and for all prompts that are not read yet."""
        unread = sum(live.reading for live in self._live.values())
        unread += sum(self._cost.prefill_seconds(visit.prompt_tokens, 0) for visit in self._door)
        wait = max(0.0, self._ends - now) + unread
        waiting, page = self.scheduler.waiting + len(self._door), self.cache.page_size
        return Candidate(self.number, self.scheduler.running, waiting, wait, page_tokens=page)

    @property
    def longest(self) -> int:
        """Most tokens of a request, prompt and answer: what is longer is refused."""
        return self._bounds.longest

    def arrive(self, visit: Visit) -> None:
        """It is let in before the next step."""
        self._door.append(visit)

    def warm(self, visit: Visit, now: float) -> int | None:
        """It comes and goes at once; returns how much of its prompt was there, None if it was refused."""
        try:
            self._bounds.max_len(visit.prompt_tokens, visit.output_tokens)
        except ContextLengthError:
            return None
        return pass_through(self.cache, visit.namespace, visit.computed, now, visit.prompt_tokens - 1)

    def begin(self, now: float, until: float) -> float | None:
        """Let in who has arrived, and begin a step; returns when it ends, None if there is nothing to do.

        Nobody else arrives before `until`, so steps that end before may be taken at once.
        """
        self.let_in()
        if self._coasting:
            now = self._coast(now, until)
        while self._live:
            before = len(self._live)
            shape = self.schedule(now)
            if shape is not None:
                self._ends = now + self._cost.step_seconds(shape)
                return self._ends
            # Nothing has changed, so it would say the same when asked again.
            assert len(self._live) < before, f"the scheduler does nothing for {before} requests"
        return None

    def let_in(self) -> None:
        """Who has arrived joins those that wait."""
        for visit in self._door:
            self._admit(visit)
        self._door.clear()

    def schedule(self, now: float) -> StepShape | None:
        """Begin a step; returns what it computes, None if there is nothing to compute."""
        self.cache.advance(now)
        self._plan = self.scheduler.schedule()
        self._take_notices(now)
        if self._plan is None:
            self._refuse_turned_away()
            return None
        return _shape_of(self._plan)

    def abort(self, index: int, now: float) -> int | None:
        """Between steps, whoever asked this is gone.

        Returns the tokens of its answers; None, and nothing is done, if it is not here.
        """
        live = next((live for live in self._live.values() if live.visit.index == index), None)
        if live is None:
            return None
        self._stop(live)
        self._record.finished(index, now)
        return sum(sequence.generated for sequence in live.samples)

    def flush(self) -> None:
        """Forget all prefixes, as the engine does between two steps."""
        if self._drafts is not None:
            self._drafts.flush()
        self.cache.flush()

    def take_refused(self) -> list[Visit]:
        """Who was refused since the last call."""
        refused, self._refused = self._refused, []
        return refused

    def end(self, now: float) -> list[Visit]:
        """The step that was begun ends now; returns who ends with it, in order."""
        assert self._plan is not None
        plan, self._plan = self._plan, None
        seconds = now - self.cache.now
        outcomes = self.scheduler.apply(self._runner.run(plan), seconds)
        self._record.stepped(self.number, seconds, plan.tokens)
        over = [visit for outcome in outcomes if (visit := self._apply(outcome, now)) is not None]
        self._refuse_turned_away()
        return over

    # ---- letting in --------------------------------------------------------------------------------------

    def _admit(self, visit: Visit) -> None:
        asked = visit.asked or Asked(visit.output_tokens)
        try:
            max_len = self._bounds.max_len(visit.prompt_tokens, asked.tokens)
        except ContextLengthError as error:
            self._refuse(visit, error.message)
            return
        reading = self._cost.prefill_seconds(visit.prompt_tokens, 0)
        live = _Live(visit, self._let_in, max_len, reading)
        self._let_in += 1
        self._begin_sample(live)

    def _begin_sample(self, live: _Live) -> None:
        """The next one, as the engine does."""
        visit, sample = live.visit, len(live.samples)
        asked = visit.asked or Asked(visit.output_tokens)
        self._begun += 1
        sequence = Sequence(
            SeqId(self._begun),
            _request_of(visit, asked),
            visit.namespace,
            visit.prompt,
            arrival=live.arrival,
            max_len=live.max_len,
            sample=sample,
            end_tokens=asked.ends,
        )
        live.samples.append(sequence)
        self._tokens[sequence.id] = visit.told(sample)
        self._live[sequence.id] = live
        self.scheduler.add(sequence)

    def _take_notices(self, now: float) -> None:
        for notice in self.scheduler.take_notices():
            live = self._live[notice.sequence.id]
            if isinstance(notice, Refused):
                self._turned_away.append(notice)
            elif notice.sequence.sample == 0:
                reuse = notice.sequence.reuse
                assert reuse is not None
                self._record.admitted(live.visit.index, reuse, now)
                live.reading = self._cost.prefill_seconds(live.visit.prompt_tokens, reuse.reused)

    def _refuse_turned_away(self) -> None:
        """Not while a step is out: samples of the same request may be part of it."""
        for notice in self._turned_away:
            live = self._live.get(notice.sequence.id)
            if live is not None:  # Else it went with another sample.
                self._stop(live)
                self._refuse(live.visit, notice.reason)
        self._turned_away.clear()

    def _refuse(self, visit: Visit, reason: str) -> None:
        self._record.refused(visit.index, reason)
        self._refused.append(visit)

    def _stop(self, live: _Live) -> None:
        for sequence in live.samples:
            if sequence.id in self._live:
                self.scheduler.abort(sequence.id)
                self._forget(sequence.id)

    def _forget(self, seq: SeqId) -> None:
        del self._live[seq], self._tokens[seq]

    # ---- steps -------------------------------------------------------------------------------------------

    def _apply(self, outcome: Outcome, now: float) -> Visit | None:
        """Whose last sample ends with this."""
        sequence = outcome.sequence
        live = self._live[sequence.id]
        if outcome.prompt_done:
            live.reading = 0.0
            while len(live.samples) < live.visit.samples:
                self._begin_sample(live)
        if outcome.drawn:
            self._record.drew_first(live.visit.index, now)
        if not self._ends_with(outcome, live.visit):
            return None
        self.scheduler.finish(sequence.id)
        self._forget(sequence.id)
        live.ended += 1
        if not live.over:
            return None
        self._record.finished(live.visit.index, now)
        return live.visit

    def _ends_with(self, outcome: Outcome, visit: Visit) -> bool:
        """Whether this was a sample's last step."""
        sequence = outcome.sequence
        if not outcome.prompt_done and not outcome.drawn:
            return False
        return len(sequence) == len(self._tokens[sequence.id]) and sequence.sample not in visit.cut

    def _coast(self, now: float, until: float) -> float:
        """Take steps that end before `until` and do nothing but draw; returns when the last of them ends."""
        coast = self.scheduler.coast()
        if coast is None:
            return now
        counts = np.ones(len(coast.sequences), np.int64)
        while coast.left and coast.begin(now):
            ends = now + self._cost.step_seconds(StepShape(coast.starts, counts, len(counts)))
            if ends >= until:
                break
            coast.drew()
            self._record.stepped(self.number, ends - now, len(counts))
            now = ends
        coast.end([self._told(seq, coast.steps) for seq in coast.sequences])
        return now

    def _told(self, seq: SeqId, count: int) -> Tokens:
        live = self._live[seq]
        said = len(next(each for each in live.samples if each.id == seq))
        return self._tokens[seq][said : said + count]


def _request_of(visit: Visit, asked: Asked) -> Request:
    params = SamplingParams(max_tokens=None if asked.tokens is None else visit.output_tokens)
    return Request(
        str(visit.index), (), params, priority=asked.priority, reuse=asked.reuse, retain=asked.retain
    )


def _shape_of(plan: StepPlan) -> StepShape:
    works = plan.works
    return StepShape(
        np.array([work.start for work in works], np.int64),
        np.array([len(work.tokens) for work in works], np.int64),
        sum(1 + len(work.guesses) for work in works if work.sample is not None),
    )
