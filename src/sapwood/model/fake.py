"""A runner without a model, for tests: knows what each page must hold, and catches one that does not.

For every slot it stores the token written there and a running sum over the whole prefix up to it. Before a
work is run, the slots its page table names must hold one unbroken prefix; a stale, shared or misplaced page
cannot. Logits are a function of that sum alone: an output equals the solo output exactly if the same tokens
were read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from sapwood.errors import DeadEndError
from sapwood.plan import SampleOrder, SequenceResult, SequenceWork, StepPlan, StepResult
from sapwood.types import SamplingParams, SeqId, TokenLogprob

Hook = Callable[[StepPlan], frozenset[SeqId]]
"""Called before a step: may block (a slow model), raise (a crash), or name sequences that are to fail."""

_Sums = NDArray[np.uint64]
_NEVER_WRITTEN = np.iinfo(np.int32).min


def _mix(values: _Sums) -> _Sums:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014), elementwise and wrapping."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _prefix_sums(tokens: NDArray[np.int32], start: int = 0, before: int = 0) -> _Sums:
    """Sum over positions 0..i of token × a factor of the position, for i in start .. start+len(tokens)-1."""
    positions = np.arange(start, start + len(tokens), dtype=np.uint64)
    terms = (tokens.astype(np.uint64) + np.uint64(1)) * (_mix(positions + np.uint64(1)) | np.uint64(1))
    return np.cumsum(terms, dtype=np.uint64) + np.uint64(before)


def _no_faults(_plan: StepPlan) -> frozenset[SeqId]:
    return frozenset()


class FakeRunner:
    """Implements `plan.Runner`. Raises AssertionError when a page does not hold what the plan says it holds.

    Attributes:
        computed_tokens: tokens computed so far, over all steps.
        computed_by_seq: the same per sequence.
        steps: steps run.
        hook: see `Hook`; exchange it at any time.
    """

    def __init__(
        self, vocab_size: int, page_size: int, capacity_pages: int, *, hook: Hook = _no_faults
    ) -> None:
        self.vocab_size = vocab_size
        self.page_size = page_size
        self.hook = hook
        self.computed_tokens = 0
        self.computed_by_seq: dict[SeqId, int] = {}
        self.steps = 0
        slots = page_size * capacity_pages
        self._tokens = np.full(slots, _NEVER_WRITTEN, dtype=np.int32)
        self._sums = np.zeros(slots, dtype=np.uint64)

    def run(self, plan: StepPlan) -> StepResult:
        self.steps += 1
        try:
            failing = self.hook(plan)
        except BaseException:
            for work in plan.works:
                self._poison(work)
            raise
        self._check_writes(plan)
        return StepResult(plan.step, tuple(self._run_work(work, failing) for work in plan.works))

    def solo(
        self,
        prompt: tuple[int, ...],
        params: SamplingParams,
        count: int,
        *,
        seed: int = 0,
        sample: int = 0,
        end_tokens: tuple[int, ...] = (),
    ) -> tuple[TokenLogprob, ...]:
        """The first `count` tokens a sequence alone would draw; `end_tokens` are banned to min_tokens."""
        tokens, drawn = list(prompt), list[TokenLogprob]()
        while len(drawn) < count:
            history = np.array(tokens, dtype=np.int32)
            banned = end_tokens if len(drawn) < params.min_tokens else ()
            order = SampleOrder(params, seed, sample, len(prompt), history, banned)
            drawn.append(self._draw(int(_prefix_sums(history)[-1]), order))
            tokens.append(drawn[-1].token)
        return tuple(drawn)

    def score(self, prompt: tuple[int, ...], count: int) -> tuple[TokenLogprob, ...]:
        """The logprobs of a prompt's tokens 1 .. n-1, with `count` top entries each."""
        sums = _prefix_sums(np.array(prompt, dtype=np.int32)).tolist()
        pairs = zip(sums[:-1], prompt[1:], strict=True)
        return tuple(self._entry(self._logprobs(prefix_sum), token, count) for prefix_sum, token in pairs)

    def _run_work(self, work: SequenceWork, failing: frozenset[SeqId]) -> SequenceResult:
        before = self._check_history(work)
        if work.seq in failing:
            self._poison(work)
            return SequenceResult(work.seq, error="the fake runner was told to fail this sequence")
        written = self._slots(work)[work.start :]
        sums = _prefix_sums(work.tokens, work.start, before)
        self._tokens[written] = work.tokens
        self._sums[written] = sums
        self.computed_tokens += len(work.tokens)
        self.computed_by_seq[work.seq] = self.computed_by_seq.get(work.seq, 0) + len(work.tokens)
        last = len(sums) - 1 - len(work.guesses)
        try:
            drawn = None if work.sample is None else self._draw(int(sums[last]), work.sample)
        except DeadEndError as error:
            return SequenceResult(work.seq, error=error.message, dead_end=True)
        followed = () if drawn is None else tuple(self._followed(work, drawn, sums[last + 1 :]))
        return SequenceResult(work.seq, drawn, self._scores(work, sums), followed=followed)

    def _followed(self, work: SequenceWork, drawn: TokenLogprob, sums: _Sums) -> Iterator[TokenLogprob]:
        """The draws after each guess, for as long as what was drawn is what was guessed."""
        draft = work.tokens[len(work.tokens) - len(work.guesses) :].tolist()
        for guess, prefix_sum, order in zip(draft, sums.tolist(), work.guesses, strict=True):
            if drawn.token != guess:
                return
            try:
                drawn = self._draw(prefix_sum, order)
            except DeadEndError:
                return  # It is told when this draw is the next of its sequence.
            yield drawn

    # ---- what pages hold ---------------------------------------------------------------------------------

    def _slots(self, work: SequenceWork) -> NDArray[np.int64]:
        """The slot of each position 0 .. end-1."""
        end = work.start + len(work.tokens)
        positions = np.arange(end)
        return (
            work.pages.astype(np.int64)[positions // self.page_size] * self.page_size
            + positions % self.page_size
        )

    def _check_history(self, work: SequenceWork) -> int:
        """The prefix sum before the work, after proving that every slot before it holds that prefix."""
        end = work.start + len(work.tokens)
        assert len(work.tokens) > 0, f"sequence {work.seq}: empty work"
        assert len(work.pages) == -(-end // self.page_size), (
            f"sequence {work.seq}: {len(work.pages)} pages for {end}"
        )
        assert len(np.unique(work.pages)) == len(work.pages), f"sequence {work.seq}: a page appears twice"
        held = self._slots(work)[: work.start]
        tokens, sums = self._tokens[held], self._sums[held]
        expected = _prefix_sums(tokens)
        wrong = np.flatnonzero((sums != expected) | (tokens == _NEVER_WRITTEN))
        assert wrong.size == 0, (
            f"sequence {work.seq}: position {wrong[0]} is read from a page that holds other KV"
        )
        if work.sample is not None:
            last = end - len(work.guesses)
            for at, order in enumerate((work.sample, *work.guesses), start=last):
                assert len(order.history) == at, (
                    f"sequence {work.seq}: draws at {len(order.history)}, not at {at}"
                )
            history = (work.sample, *work.guesses)[-1].history
            assert np.array_equal(tokens, history[: work.start]), (
                f"sequence {work.seq}: pages of another prompt"
            )
            assert np.array_equal(work.tokens, history[work.start :]), (
                f"sequence {work.seq}: wrong tokens to compute"
            )
        return int(expected[-1]) if work.start else 0

    def _check_writes(self, plan: StepPlan) -> None:
        """No page is written by one work and named by another in the same step."""
        named: dict[int, SeqId] = {}
        written: dict[int, SeqId] = {}
        for work in plan.works:
            first = work.start // self.page_size
            for page in work.pages.tolist():
                assert page not in written, (
                    f"sequence {work.seq} names page {page} that {written[page]} writes"
                )
            for page in work.pages[first:].tolist():
                assert page not in named, f"sequence {work.seq} writes page {page} that {named[page]} names"
                written[page] = work.seq
            named.update(dict.fromkeys(work.pages.tolist(), work.seq))

    def _poison(self, work: SequenceWork) -> None:
        """What a failed step leaves behind: if anyone commits it, a later reader is caught."""
        self._tokens[self._slots(work)[work.start :]] = _NEVER_WRITTEN

    # ---- what is drawn -----------------------------------------------------------------------------------

    def _logprobs(self, prefix_sum: int) -> NDArray[np.float64]:
        """shape (vocab_size,): natural-log probabilities, a function of the prefix sum alone."""
        keys = np.arange(1, self.vocab_size + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        uniform = (_mix(keys + np.uint64(prefix_sum)) >> np.uint64(11)).astype(np.float64) / 2.0**53
        logits = 8.0 * uniform
        return np.asarray(logits - np.log(np.exp(logits).sum()), dtype=np.float64)

    def _draw(self, prefix_sum: int, order: SampleOrder) -> TokenLogprob:
        logprobs = self._logprobs(prefix_sum)
        allowed = logprobs.copy()
        if order.guide is not None:
            allowed[~order.guide.mask(order.history[order.prompt_len :])] = -np.inf
        if np.isfinite(np.delete(allowed, list(order.banned))).any():
            allowed[list(order.banned)] = -np.inf
        if order.params.temperature > 0:
            key = np.array([order.seed, order.sample, len(order.history)], dtype=np.uint64)
            noise = _mix(_mix(_mix(key[:1]) + key[1:2]) + key[2:3]) + np.uint64(prefix_sum)
            ids = np.arange(1, self.vocab_size + 1, dtype=np.uint64)
            uniform = (_mix(ids * np.uint64(0xD1342543DE82EF95) + noise) >> np.uint64(11)) / 2.0**53
            allowed = allowed / order.params.temperature - np.log(-np.log(uniform + 1e-300) + 1e-300)
        token = int(np.argmax(allowed))
        if order.params.logprobs is None:
            return TokenLogprob(token, 0.0)
        return self._entry(logprobs, token, order.params.logprobs)

    def _scores(self, work: SequenceWork, sums: _Sums) -> tuple[TokenLogprob, ...]:
        if work.score is None or work.score_targets is None:
            return ()
        pairs = zip(sums[work.score_skip :].tolist(), work.score_targets.tolist(), strict=False)
        return tuple(
            self._entry(self._logprobs(prefix_sum), target, work.score) for prefix_sum, target in pairs
        )

    def _entry(self, logprobs: NDArray[np.float64], token: int, count: int) -> TokenLogprob:
        ranked = np.argsort(-logprobs, kind="stable")[:count]
        top = tuple((int(i), float(logprobs[i])) for i in ranked)
        return TokenLogprob(token, float(logprobs[token]), top)
