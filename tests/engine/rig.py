"""An engine over the fake runner, driven step by step, with the answers it should give."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from sapwood.cache import PrefixCache
from sapwood.config import CacheConfig, IndexName, OrderName, SchedulerConfig, SpeculateName
from sapwood.engine import Engine, ModelFacts
from sapwood.model.fake import FakeRunner, Hook
from sapwood.plan import GuideMaker
from sapwood.types import (
    Delta,
    Event,
    Finished,
    FinishReason,
    PromptScored,
    Request,
    SamplingParams,
    Scope,
    Started,
    TokenLogprob,
    Usage,
)

VOCAB = 40
SEED = 7

# Letters, a two-letter piece, and the two bytes of "é" apart: text lags behind tokens now and then.
PIECES: tuple[bytes, ...] = (
    *(bytes([97 + i]) for i in range(26)),
    *(bytes([65 + i]) for i in range(10)),
    b"xy",
    b"zz ",
    b"\xc3",
    b"\xa9",
)


class ByteDetok:
    """A Detok over PIECES."""

    def __init__(self, _prompt: tuple[int, ...]) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def add(self, token: int) -> str:
        return self._decoder.decode(PIECES[token])

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


def text_of(tokens: tuple[int, ...]) -> str:
    return b"".join(PIECES[t] for t in tokens).decode("utf-8", errors="replace")


@dataclass
class SampleLog:
    tokens: tuple[int, ...] = ()
    text: str = ""
    logprobs: tuple[TokenLogprob, ...] = ()
    finish: FinishReason | None = None


@dataclass
class Log:
    """Everything that was said of one request; refuses events out of order."""

    request: Request
    started: Usage | None = None
    scored: tuple[TokenLogprob | None, ...] | None = None
    samples: dict[int, SampleLog] = field(default_factory=dict)
    finished: Finished | None = None

    @property
    def usage(self) -> Usage:
        assert self.finished is not None
        return self.finished.usage

    def take(self, event: Event) -> None:
        assert self.finished is None, f"{event} after the end"
        match event:
            case Started(usage=usage):
                assert self.started is None
                assert not self.samples
                self.started = usage
            case PromptScored(logprobs=logprobs):
                assert self.scored is None
                self.scored = logprobs
            case Delta():
                self._take_delta(event)
            case Finished():
                self.finished = event
                self._check_usage(event.usage)

    def _take_delta(self, delta: Delta) -> None:
        sample = self.samples.setdefault(delta.sample, SampleLog())
        assert sample.finish is None, f"{delta} after the sample's end"
        sample.tokens += delta.token_ids
        sample.text += delta.text
        sample.logprobs += delta.logprobs
        sample.finish = delta.finish

    def _check_usage(self, usage: Usage) -> None:
        assert usage.prompt_tokens == len(self.request.prompt)
        assert usage.reused + sum(usage.missed.values()) == usage.prompt_tokens
        assert 0 <= usage.reused < usage.prompt_tokens
        assert all(count > 0 for count in usage.missed.values())
        given = sum(len(s.tokens) for s in self.samples.values())
        assert usage.completion_tokens == given or (
            self.request.params.ranked and usage.completion_tokens > given
        )
        if self.started is not None:
            assert (self.started.reused, self.started.missed) == (usage.reused, usage.missed)


class Rig:
    """Engine, cache and fake runner; `logs` keeps what each request was told."""

    def __init__(
        self,
        pool: int = 4096,
        *,
        page_size: int = 1,
        chunk: int = 64,
        max_running: int = 8,
        policy: OrderName = "fcfs",
        context: int = 4096,
        eos: tuple[int, ...] = (),
        index: IndexName = "radix",
        hook: Hook | None = None,
        guides: GuideMaker | None = None,
        speculate: SpeculateName = "auto",
        seconds: Callable[[int], float] | None = None,
    ) -> None:
        """`seconds` says how long a step of so many tokens takes; without it none takes any time."""
        self.cache = PrefixCache(pool // page_size, CacheConfig(page_size=page_size, prefix_index=index))
        self.runner = FakeRunner(VOCAB, page_size, pool // page_size)
        if hook is not None:
            self.runner.hook = hook
        self.facts = ModelFacts("fake", context, VOCAB, eos)
        self.engine = Engine(
            self.runner,
            self.cache,
            SchedulerConfig(
                chunk_tokens=chunk, max_running=max_running, schedule_policy=policy, speculate=speculate
            ),
            self.facts,
            ByteDetok,
            reuse=index != "none",
            paranoid=True,
            guides=guides,
            pick_seed=lambda: SEED,
        )
        self.logs: dict[str, Log] = {}
        self.now = 0.0
        self._seconds = seconds

    def add(
        self,
        prompt: tuple[int, ...],
        params: SamplingParams | None = None,
        *,
        scope: Scope | None = None,
        reuse: bool = True,
        priority: int = 0,
    ) -> Log:
        params = params or SamplingParams(temperature=0.0)
        request = Request(f"r{len(self.logs)}", prompt, params, scope or Scope(), priority, reuse)
        self.engine.add(request, self.now)
        log = self.logs[request.id] = Log(request)
        return log

    def step(self) -> None:
        if self._seconds is None:
            self.now += 1.0
            self.take(self.engine.step(self.now))
        else:
            scheduled = self.engine.schedule(self.now)
            self.take(scheduled.events)
            if scheduled.plan is not None:
                result = self.engine.run(scheduled.plan)
                self.now += self._seconds(scheduled.plan.tokens)
                self.take(self.engine.apply(result, self.now))
        self.cache.check()
        self.expect_counts()

    def abort(self, log: Log) -> None:
        self.take(self.engine.abort(log.request.id))
        self.cache.check()

    def take(self, events: list[Event]) -> None:
        for event in events:
            self.logs[event.request_id].take(event)

    def run(self, most_steps: int = 20_000) -> None:
        """Step until idle."""
        for _ in range(most_steps):
            if not self.engine.busy:
                return
            self.step()
        raise AssertionError(
            f"still busy after {most_steps} steps: {[name for name, log in self.logs.items() if log.finished is None]}"
        )

    def ask(
        self, prompt: tuple[int, ...], params: SamplingParams | None = None, *, reuse: bool = True
    ) -> Log:
        """Add one request and step until idle."""
        log = self.add(prompt, params, reuse=reuse)
        self.run()
        return log

    # ---- judging -----------------------------------------------------------------------------------------

    def expect_solo(self, log: Log) -> None:
        """The request succeeded, and each sample is what it would have been alone and without a cache."""
        assert log.finished is not None
        assert log.finished.error is None, log.finished.error
        assert sorted(log.samples) == list(range(log.request.params.n))
        expected = self.best(log.request) if log.request.params.ranked else self.each(log.request)
        assert [log.samples[index] for index in range(len(expected))] == expected

    def each(self, request: Request) -> list[SampleLog]:
        return [self.solo(request, index) for index in range(request.params.drawn)]

    def best(self, request: Request) -> list[SampleLog]:
        """The n samples with the highest mean logprob, the best first."""
        scored = replace(request, params=replace(request.params, logprobs=request.params.logprobs or 0))
        means = [
            sum(entry.logprob for entry in sample.logprobs) / len(sample.logprobs)
            for sample in self.each(scored)
        ]
        ranked = sorted(range(len(means)), key=lambda index: -means[index])
        return [self.solo(request, index) for index in ranked[: request.params.n]]

    def scores(self, request: Request) -> tuple[TokenLogprob | None, ...] | None:
        """What is to be said of its prompt."""
        params = request.params
        if params.prompt_logprobs is None:
            return None
        unscored = min(max(1, params.prompt_logprobs_start), len(request.prompt))
        return (
            *[None] * unscored,
            *self.runner.score(request.prompt, params.prompt_logprobs)[unscored - 1 :],
        )

    def solo(self, request: Request, sample: int) -> SampleLog:
        """What a sample must be, by definition: draw all, decode at once, cut at the first end."""
        params = request.params
        ends = params.stop_token_ids + (() if params.ignore_eos else self.facts.eos)
        most = self.facts.context - len(request.prompt) if params.max_tokens is None else params.max_tokens
        seed = SEED if params.seed is None else params.seed % 2**64
        drawn = self.runner.solo(request.prompt, params, most, seed=seed, sample=sample, end_tokens=ends)
        tokens = tuple(entry.token for entry in drawn)
        for count in range(1, len(tokens) + 1):
            if tokens[count - 1] in ends:
                return _sample_log(drawn[:count], text_of(tokens[: count - 1]), "stop", params)
            cut = _cut(tokens[:count], params)
            if cut is not None:
                return _sample_log(drawn[:count], cut, "stop", params)
        return _sample_log(drawn, text_of(tokens), "length", params)

    def expect_counts(self) -> None:
        """What is counted on the way is what a recount gives."""
        running = {sequence.request.id for sequence in self.engine._scheduler._running.values()}
        unfinished = sum(log.finished is None for log in self.logs.values())
        stats = self.engine.stats()
        assert (stats.running, stats.waiting) == (len(running), unfinished - len(running))

    def expect_no_leaks(self) -> None:
        """Idle: no page is leased or private, and a flush empties the pool."""
        assert not self.engine.busy
        stats = self.engine.stats()
        assert (stats.running, stats.waiting, stats.pages.leased, stats.pages.private) == (0, 0, 0, 0)
        self.engine.flush()
        self.cache.check()
        assert self.cache.books().free == self.cache.capacity_pages


def _cut(tokens: tuple[int, ...], params: SamplingParams) -> str | None:
    text = text_of(tokens)
    if text.endswith("�"):
        text = text[:-1]  # Perhaps half a character.
    ends = [(text.find(stop) + len(stop), -len(stop)) for stop in params.stop if stop in text]
    return None if not ends else text[: min(ends)[0] + min(ends)[1]]


def _sample_log(
    drawn: tuple[TokenLogprob, ...], text: str, finish: FinishReason, params: SamplingParams
) -> SampleLog:
    tokens = tuple(entry.token for entry in drawn)
    return SampleLog(tokens, text, () if params.logprobs is None else drawn, finish)


def prompt_of(length: int, salt: int = 0) -> tuple[int, ...]:
    """Some tokens; other salts differ from the first token on, or from the second if they are VOCAB apart."""
    return tuple((7 * i + i * i // 5 + 11 * salt + salt // VOCAB * i) % VOCAB for i in range(length))


def greedy(max_tokens: int | None = 8, **others: object) -> SamplingParams:
    fields: Mapping[str, object] = {"temperature": 0.0, "max_tokens": max_tokens, **others}
    return SamplingParams(**fields)  # type: ignore[arg-type]
