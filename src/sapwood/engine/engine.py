"""From requests to events: the synchronous core. Read this first.

    add(request) ──► Answer with up to n Samples ──► Sequences ──► Scheduler
    step:  schedule() → StepPlan    run(plan) → StepResult    apply(result) → events

One thread calls everything here, between steps. The clock is an argument. A request ends in exactly one
`Finished`, whatever happens: its samples are done, it was aborted, or it failed, and a failure stops no
other.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from sapwood.cache import Flushed, HitRateCurve, Namespace, PrefixCache, ScoreStore
from sapwood.config import SchedulerConfig
from sapwood.engine.answer import Answer, Detokenizer, Sample
from sapwood.engine.limits import Admission, Limits, ModelFacts
from sapwood.engine.pace import Pace
from sapwood.engine.pins import Pin, Pins
from sapwood.engine.stats import EngineStats, PageCounts, Tally
from sapwood.errors import RequestError, UnavailableError
from sapwood.plan import GuideMaker, Runner, SequenceResult, StepPlan, StepResult
from sapwood.sched import Drafts, Outcome, Refused, Scheduler, Sequence
from sapwood.types import Event, Finished, PromptScored, Request, Scope, SeqId, Started

_log = logging.getLogger("sapwood.engine")

_SEED_MASK = 2**64 - 1
"""The draws are keyed by 64 bits; negative seeds are seeds too."""


def _any_seed() -> int:
    return secrets.randbits(63)


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A step about to run; no plan means that nothing is to be computed."""

    plan: StepPlan | None
    events: list[Event]


class Engine:
    """Drives scheduler, runner and cache.

    Args:
        reuse: False when the cache was built without an index (`prefix_index="none"`).
        curve: told of every sequence that ends; without it nothing is estimated.
        pin_tokens: most tokens that pins may hold.
        score_memory: most bytes of prompts' scores that are kept, for prompts that are scored again.
        paranoid: prove the cache's books after every step.
        guides: keeps answers within grammars; without it requests with a constraint are refused.
        pick_seed: seeds for requests that bring none.
    """

    def __init__(
        self,
        runner: Runner,
        cache: PrefixCache,
        config: SchedulerConfig,
        model: ModelFacts,
        detokenizer: Detokenizer,
        *,
        reuse: bool = True,
        curve: HitRateCurve | None = None,
        pin_tokens: int = 0,
        score_memory: int = 64 * 2**20,
        paranoid: bool = False,
        guides: GuideMaker | None = None,
        pick_seed: Callable[[], int] = _any_seed,
    ) -> None:
        self.cache = cache
        self.reuse = reuse
        self.model = model
        self.limits = Limits(
            context=min(model.context, config.max_context or model.context),
            pool=cache.capacity_pages * cache.page_size,
            vocab_size=model.vocab_size,
            priorities=config.schedule_policy == "priority",
            retains=cache.retains,
            guides=guides,
        )
        self.tally = Tally()
        self.pins = Pins(cache, pin_tokens)
        self.scores = ScoreStore(score_memory if reuse else 0)
        self._curve = curve
        self._pace = Pace()
        self._runner = runner
        self._drafts = Drafts(cache) if config.speculate == "auto" else None
        self._scheduler = Scheduler(cache, config, reuse=reuse, scores=self.scores, drafts=self._drafts)
        self._detokenizer = detokenizer
        self._paranoid = paranoid
        self._pick_seed = pick_seed
        self._answers: dict[str, Answer] = {}
        self._samples: dict[SeqId, Sample] = {}
        self._refused: list[Refused] = []
        self._next_seq = 0
        self._next_arrival = 0

    @property
    def busy(self) -> bool:
        """Whether any request is unfinished."""
        return bool(self._answers)

    # ---- between steps -----------------------------------------------------------------------------------

    def add(self, request: Request, now: float) -> None:
        """Queue a request. Raises RequestError (ContextLengthError if it is too long) and changes nothing."""
        self.admit(self.limits.admit(request), now)

    def admit(self, admission: Admission, now: float) -> None:
        """Queue a request that `limits` admitted. Raises RequestError if its id is in use."""
        request = admission.request
        if request.id in self._answers:
            raise RequestError(
                f"a request with id {request.id!r} is still being served; ids must be unique", param="id"
            )
        answer = Answer(request, self._sample_maker(admission), now)
        self._next_arrival += 1
        self._answers[request.id] = answer
        self._enqueue(answer.samples)

    def abort(self, request_id: str) -> list[Event]:
        """End a request in whatever state it is: its last events, or none if it is over or was never here."""
        answer = self._answers.get(request_id)
        if answer is None:
            return []
        self.tally.aborts += 1
        self._stop_samples(answer)
        return [*answer.end("abort"), self._close(answer)]

    def pin(self, pin_id: str, scope: Scope, prompt: tuple[int, ...], now: float) -> Pin | None:
        """Hold all whole pages of a prompt until `pins.unpin`; None, and nothing is held, if one is not cached.

        Raises RequestError if that is over the budget, UnavailableError if a request that has begun could not
        reach its end beside it.
        """
        self.cache.advance(now)
        pin = self.pins.pin(pin_id, self._namespace(scope), np.array(prompt, dtype=np.int32))
        if pin is not None:
            cramped = self._scheduler.make_room_for_pins(self.pins.pages())
            if cramped is not None:
                self.pins.unpin(pin_id)
                raise UnavailableError(
                    f"beside this pin there is no room for a request that has begun, which may come to "
                    f"{cramped.most_computed} tokens",
                    hint="try again when it has ended, pin less, or start the server with more --kv-memory",
                )
        return pin

    def publish(self, prefixes: Iterable[tuple[int, ...]]) -> None:
        """Let all tenants read these cached prompts' whole pages for good; they count towards the pins' budget."""
        self.pins.publish(self._namespace(Scope()), [np.array(each, dtype=np.int32) for each in prefixes])

    def flush(self) -> Flushed:
        """Forget all prefixes and end all pins. Running requests finish; nothing from before the call matches after."""
        self.pins.clear()
        self.scores.flush()
        if self._drafts is not None:
            self._drafts.flush()
        if self._curve is not None:
            self._curve.flush()
        return self.cache.flush()

    def stats(self) -> EngineStats:
        books = self.cache.books()
        running = self._scheduler.running_requests
        return self.tally.snapshot(
            pages=PageCounts(books.free, books.evictable, books.leased, books.private),
            running=running,
            waiting=len(self._answers) - running,
            preemptions=self._scheduler.preemptions,
            evicted_tokens=books.evicted_tokens,
            pinned_tokens=self.pins.pinned_tokens,
            pin_budget_tokens=self.pins.budget,
            score_bytes=self.scores.nbytes,
            score_budget_bytes=self.scores.capacity,
            curve=self._curve.points() if self._curve is not None else (),
        )

    # ---- a step ------------------------------------------------------------------------------------------

    def step(self, now: float) -> list[Event]:
        """All three verbs of one step."""
        scheduled = self.schedule(now)
        if scheduled.plan is None:
            return scheduled.events
        return scheduled.events + self.apply(self.run(scheduled.plan), now)

    def schedule(self, now: float) -> Scheduled:
        """Decide what to compute. With a plan, `run` and `apply` must follow before anything else."""
        self.cache.advance(now)
        plan = self._scheduler.schedule()
        events: list[Event] = []
        for notice in self._scheduler.take_notices():
            if isinstance(notice, Refused):
                self._refused.append(notice)
            elif notice.sequence.sample == 0:
                events.append(self._start(self._samples[notice.sequence.id], now))
        if plan is None:
            events += self._fail_refused()
        return Scheduled(plan, events)

    def run(self, plan: StepPlan) -> StepResult:
        """Let the runner run. If it raises, every sequence of this step has failed, and only those."""
        try:
            return self._runner.run(plan)
        except Exception as error:
            _log.exception("step %d failed", plan.step)
            reason = (
                f"the model failed: {error}" if str(error) else f"the model failed: {type(error).__name__}"
            )
            return StepResult(plan.step, tuple(SequenceResult(work.seq, error=reason) for work in plan.works))

    def apply(self, result: StepResult, now: float) -> list[Event]:
        """Take in a step's result; `now` is the time at which its tokens exist."""
        events: list[Event] = []
        seconds = now - self.cache.now
        outcomes = self._scheduler.apply(result, seconds)
        computed = [outcome.computed for outcome in outcomes]
        decoded = sum(outcome.computed for outcome in outcomes if outcome.computed - outcome.guessed == 1)
        self._pace.saw(sum(computed) - decoded, seconds, decoded)
        for outcome in outcomes:
            events += self._apply_one(outcome, now)
        events += self._fail_refused()
        self.tally.steps += 1
        if self._paranoid:
            self.cache.check()
            self.scores.check()
        return events

    def _apply_one(self, outcome: Outcome, now: float) -> list[Event]:
        sample = self._samples.get(outcome.sequence.id)
        if sample is None:
            return []  # A sibling failed in this very step, and the request with it.
        if outcome.error is not None:
            return self._fail(sample, outcome.error, dead_end=outcome.dead_end)
        answer = self._answers[sample.sequence.request.id]
        self.tally.computed_tokens += outcome.computed
        events: list[Event] = []
        if outcome.prompt_done:
            events += self._prompt_done(answer, sample)
        if outcome.prompt_done and not sample.sequence.draws and not outcome.drawn:
            events += answer.report(sample.end("length"))
        events += self._take(answer, sample, outcome, now)
        if sample.finish is not None:
            self._observe(sample.sequence)
            self._scheduler.finish(sample.sequence.id)
            del self._samples[sample.sequence.id]
            if answer.over:
                self.tally.count_finished(answer.request.scope.tenant)
                events.append(self._close(answer))
        return events

    def _take(self, answer: Answer, sample: Sample, outcome: Outcome, now: float) -> list[Event]:
        """The tokens that were drawn, one by one: with any of them the answer may be over, or fail."""
        events: list[Event] = []
        left = len(outcome.drawn)
        for drawn in outcome.drawn:
            left -= 1
            self._time_token(answer, sample, now)
            try:
                events += answer.report(sample.take(drawn))
            except Exception as error:
                _log.exception(
                    "request %s: its token %d could not be decoded", answer.request.id, drawn.token
                )
                sample.sequence.drop(left)
                return [*events, *self._fail(sample, f"its output could not be decoded: {error}")]
            if sample.finish is not None:
                break
        sample.sequence.drop(left)
        if outcome.guessed:
            sample.count_guesses(outcome.guessed, right := len(outcome.drawn) - left - 1)
            self.tally.guessed_tokens += outcome.guessed
            self.tally.guessed_right_tokens += right
        return events

    # ---- a request's life --------------------------------------------------------------------------------

    def _sample_maker(self, admission: Admission) -> Callable[[int], Sample]:
        """Makes the samples of a request one by one, all from the same prompt, seed and age."""
        request, arrival = admission.request, self._next_arrival
        params, scope = request.params, request.scope
        namespace = self._namespace(scope)
        # To rank the samples their logprobs are needed, asked for or not.
        unknown = params.ranked and params.logprobs is None
        drawing = replace(params, logprobs=0) if unknown else params
        seed = self._pick_seed() if params.seed is None else params.seed & _SEED_MASK
        # A grammar that is complete allows nothing but the end.
        constraint, guides = params.constraint, self.limits.guides
        ends = constraint is not None or not params.ignore_eos
        end_tokens = tuple(dict.fromkeys(params.stop_token_ids + (self.model.eos if ends else ())))

        def begin(index: int) -> Sample:
            sequence = Sequence(
                self._new_seq_id(),
                request,
                namespace,
                admission.prompt,
                arrival=arrival,
                max_len=admission.max_len,
                sample=index,
                seed=seed,
                end_tokens=end_tokens,
                params=drawing,
                guide=None if constraint is None or guides is None else guides.begin(constraint),
            )
            return Sample(sequence, self._detokenizer(request.prompt))

        return begin

    def _namespace(self, scope: Scope) -> Namespace:
        return Namespace(self.model.fingerprint, scope.adapter, scope.tenant, scope.salt)

    def _enqueue(self, samples: Iterable[Sample]) -> None:
        for sample in samples:
            self._samples[sample.sequence.id] = sample
            self._scheduler.add(sample.sequence)

    def _new_seq_id(self) -> SeqId:
        self._next_seq += 1
        return SeqId(self._next_seq)

    def _start(self, sample: Sample, now: float) -> Started:
        answer = self._answers[sample.sequence.request.id]
        answer.saved_seconds = self._pace.seconds_for(answer.usage.reused)
        self.tally.count_prompt(answer.usage, answer.request.scope.tenant)
        self.tally.queue.observe(now - answer.added_at)
        return Started(answer.request.id, answer.usage)

    def _prompt_done(self, answer: Answer, sample: Sample) -> list[Event]:
        """The prompt is read: its scores are complete, and the other samples can start from its pages."""
        self._enqueue(answer.begin_rest())
        scores = sample.sequence.scores
        if scores is None or answer.scored:
            return []
        answer.scored = True
        return [PromptScored(answer.request.id, scores.told())]

    def _time_token(self, answer: Answer, sample: Sample, now: float) -> None:
        self.tally.count_token(answer.request.scope.tenant)
        if sample.last_token_at is not None:
            self.tally.inter_token.observe(now - sample.last_token_at)
        elif sample.sequence.sample == 0:
            self.tally.time_to_first_token.observe(now - answer.added_at)
        sample.last_token_at = now

    def _fail(
        self, sample: Sample, reason: str, *, refused: bool = False, dead_end: bool = False
    ) -> list[Event]:
        """One sample's failure ends its request."""
        answer = self._answers[sample.sequence.request.id]
        self.tally.failures += 1
        self._stop_samples(answer)
        return [self._close(answer, reason, refused=refused, dead_end=dead_end)]

    def _fail_refused(self) -> list[Event]:
        """Not while a plan is out: a refused sample's siblings may be part of it."""
        events: list[Event] = []
        for notice in self._refused:
            sample = self._samples.get(notice.sequence.id)
            if sample is not None:  # Else a sibling has ended the request.
                events += self._fail(sample, notice.reason, refused=True)
        self._refused.clear()
        return events

    def _stop_samples(self, answer: Answer) -> None:
        for sample in answer.live:
            # In a step in which a sibling fails it may hold tokens that it has not said.
            sample.sequence.drop(sample.untaken)
            self._observe(sample.sequence)
            self._scheduler.abort(sample.sequence.id)
            self._samples.pop(sample.sequence.id, None)

    def _observe(self, sequence: Sequence) -> None:
        """Tell the curve of a sequence about to end: what was computed of it, and the prompt once a request."""
        if self._curve is None or sequence.computed == 0:
            return
        asked = sequence.prompt_len if sequence.sample == 0 and sequence.reads_cache else 0
        self._curve.observe(sequence.namespace, sequence.tokens[: sequence.computed], asked, self.cache.now)

    def _close(
        self, answer: Answer, error: str | None = None, *, refused: bool = False, dead_end: bool = False
    ) -> Finished:
        del self._answers[answer.request.id]
        return Finished(answer.request.id, answer.usage, error, refused, dead_end)
