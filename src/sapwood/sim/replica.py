"""One engine on a virtual clock: the real scheduler and cache, steps that take what a cost model says.

The verbs are the engine's (`engine/engine.py`), called in its order: requests are let in between steps, a step is
scheduled at the time at which it begins, and its result applied at the time at which its tokens exist.
"""

from __future__ import annotations

import numpy as np

from sapwood.cache import PrefixCache, Tokens
from sapwood.errors import ContextLengthError
from sapwood.plan import StepPlan
from sapwood.routing import Candidate
from sapwood.sched import Bounds, Drafts, Outcome, Scheduler
from sapwood.sim.cost import CostModel, StepShape
from sapwood.sim.foretold import Foretold
from sapwood.sim.live import LiveRequests
from sapwood.sim.record import Record
from sapwood.sim.replay import pass_through
from sapwood.sim.setup import Setup
from sapwood.sim.visit import Visit
from sapwood.types import SeqId


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
        self._live = LiveRequests(self.scheduler, self._bounds, cost, record)
        self._runner = Foretold(self._live.tokens)
        self._door: list[Visit] = []
        self._plan: StepPlan | None = None
        self._ends = 0.0

    @property
    def stepping(self) -> bool:
        """Whether a step has begun and not ended."""
        return self._plan is not None

    def candidate(self, now: float) -> Candidate:
        """What a router is told. The wait is for the running step and for all prompts that are not read yet."""
        unread = self._live.unread
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
            self._live.admit(visit)
        self._door.clear()

    def schedule(self, now: float) -> StepShape | None:
        """Begin a step; returns what it computes, None if there is nothing to compute."""
        self.cache.advance(now)
        self._plan = self.scheduler.schedule()
        self._live.take_notices(now)
        if self._plan is None:
            self._live.refuse_turned_away()
            return None
        return _shape_of(self._plan)

    def abort(self, index: int, now: float) -> int | None:
        """Between steps, whoever asked this is gone.

        Returns the tokens of its answers; None, and nothing is done, if it is not here.
        """
        live = self._live.find(index)
        if live is None:
            return None
        self._live.stop(live)
        self._record.finished(index, now)
        return sum(sequence.generated for sequence in live.samples)

    def flush(self) -> None:
        """Forget all prefixes, as the engine does between two steps."""
        if self._drafts is not None:
            self._drafts.flush()
        self.cache.flush()

    def take_refused(self) -> list[Visit]:
        """Who was refused since the last call."""
        return self._live.take_refused()

    def end(self, now: float) -> list[Visit]:
        """The step that was begun ends now; returns who ends with it, in order."""
        assert self._plan is not None
        plan, self._plan = self._plan, None
        seconds = now - self.cache.now
        outcomes = self.scheduler.apply(self._runner.run(plan), seconds)
        self._record.stepped(self.number, seconds, plan.tokens)
        over = [visit for outcome in outcomes if (visit := self._apply(outcome, now)) is not None]
        self._live.refuse_turned_away()
        return over

    def _apply(self, outcome: Outcome, now: float) -> Visit | None:
        """Whose last sample ends with this."""
        sequence = outcome.sequence
        live = self._live[sequence.id]
        if outcome.prompt_done:
            live.reading = 0.0
            while len(live.samples) < live.visit.samples:
                self._live.begin_sample(live)
        if outcome.drawn:
            self._record.drew_first(live.visit.index, now)
        if not self._ends_with(outcome, live.visit):
            return None
        self.scheduler.finish(sequence.id)
        self._live.forget(sequence.id)
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
        return len(sequence) == len(self._live.tokens[sequence.id]) and sequence.sample not in visit.cut

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
        said = len(next(each for each in self._live[seq].samples if each.id == seq))
        return self._live.tokens[seq][said : said + count]


def _shape_of(plan: StepPlan) -> StepShape:
    works = plan.works
    return StepShape(
        np.array([work.start for work in works], np.int64),
        np.array([len(work.tokens) for work in works], np.int64),
        sum(1 + len(work.guesses) for work in works if work.sample is not None),
    )
