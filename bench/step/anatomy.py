"""Decode steps of a real engine, with the time that they spend in the kernels and in each part around them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sapwood.cache import PrefixCache
from sapwood.chat import Detokenizer
from sapwood.config import CacheConfig, ModelConfig, SchedulerConfig
from sapwood.engine import Engine
from sapwood.engine.build import load_tokenizer, model_facts
from sapwood.engine.loop import STATS_SECONDS
from sapwood.model import ModelRunner, load_model
from sapwood.types import Event, Finished, Request, SamplingParams

if TYPE_CHECKING:
    from sapwood.model.decoder import Decoder

OWN_TOKENS = 8
"""At the end of each prompt; what comes before is shared, so that it is read once."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Microseconds of one step. `kernels` is a part of `run`; of `stats`, which is due now and then, a step's share."""

    schedule: float
    run: float
    apply: float
    stats: float
    kernels: float

    @property
    def whole(self) -> float:
        return self.schedule + self.run + self.apply + self.stats

    @property
    def python(self) -> float:
        return self.whole - self.kernels


@dataclass
class Clock:
    """Seconds spent in what it was told to watch."""

    seconds: float = field(default=0.0)

    @contextmanager
    def running(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - start

    def watching(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **named: Any) -> Any:
            with self.running():
                return function(*arguments, **named)

        return watched


class WatchedOps:
    """Stands in for a decoder's ops: the clock runs while they, or a program of them, compute."""

    def __init__(self, ops: Any, clock: Clock) -> None:
        self._ops, self._clock = ops, clock
        for name in (
            "embed",
            "rms_norm",
            "linear",
            "gated_linear",
            "rope_and_store",
            "attention",
            "pick",
            "rank",
        ):
            setattr(self, name, clock.watching(getattr(ops, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)

    def program(self, walk: Callable[[Any], None], plan: Any) -> Any:
        return _WatchedProgram(self._clock.watching(self._ops.program(walk, plan).run))


@dataclass(frozen=True, slots=True)
class _WatchedProgram:
    run: Callable[[Any], None]


class Stage:
    """An engine on the default model, without a thread of its own. Raises SapwoodError where it cannot run."""

    def __init__(self, tokens: int) -> None:
        loaded = load_model(ModelConfig(kv_memory=tokens * 23040), 1)  # bytes of one token's KV
        tokenizer = load_tokenizer(loaded.name, loaded.vocab)
        self.model = loaded.name
        self._vocab = loaded.spec.vocab_size
        self._begun = 0
        self._clock = Clock()
        decoder: Decoder = loaded.runner.decoder
        decoder.ops = WatchedOps(decoder.ops, self._clock)
        self._engine = Engine(
            ModelRunner(decoder, loaded.runner.kv),
            PrefixCache(loaded.pages, CacheConfig()),
            SchedulerConfig(speculate="off"),
            model_facts(loaded, tokenizer),
            lambda context: Detokenizer(tokenizer, context),
        )

    def decode(self, running: int, context: int, steps: int) -> list[StepTimes]:
        """The times of `steps` steps in which `running` sequences, of so many tokens at first, each get a token.

        The prompts are always the same, so they are read once.
        """
        begun = self._begin(running, context, steps + 8)
        times = [self._step() for _ in range(steps)]
        for request in begun:
            self._engine.abort(request)
        return times

    def _begin(self, running: int, context: int, most: int) -> list[str]:
        rng = np.random.default_rng(context)
        shared = rng.integers(0, self._vocab, context - OWN_TOKENS).tolist()
        params = SamplingParams(temperature=0.0, max_tokens=most, ignore_eos=True)
        self._begun += running
        names = [str(self._begun - number) for number in range(running)]
        for name in names:
            own = rng.integers(0, self._vocab, OWN_TOKENS).tolist()
            self._engine.add(Request(name, (*shared, *own), params), time.monotonic())
        said: dict[str, int] = dict.fromkeys(names, 0)
        while min(said.values()) < 3:
            for event in self._engine.step(time.monotonic()):
                said[event.request_id] += not _ends(event)
        return names

    def _step(self) -> StepTimes:
        self._clock.seconds = 0.0
        at = [time.perf_counter()]
        scheduled = self._engine.schedule(time.monotonic())
        at.append(time.perf_counter())
        assert scheduled.plan is not None
        result = self._engine.run(scheduled.plan)
        at.append(time.perf_counter())
        self._engine.apply(result, time.monotonic())
        at.append(time.perf_counter())
        self._engine.stats()
        at.append(time.perf_counter())
        schedule, run, apply, stats = (1e6 * float(each) for each in np.diff(at))
        counted = min(1.0, (at[3] - at[0]) / STATS_SECONDS)
        return StepTimes(schedule, run, apply, counted * stats, 1e6 * self._clock.seconds)


def _ends(event: Event) -> bool:
    """Raises RuntimeError if a request is over: it should have gone on."""
    if isinstance(event, Finished):
        raise RuntimeError(f"request {event.request_id} ended before it was measured: {event.error}")
    return False
