"""What scheduling and the cache's books take of each decode step, with many sequences running."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from sapwood.cache import Namespace, PrefixCache
from sapwood.config import CacheConfig, ModelConfig, SchedulerConfig
from sapwood.errors import SapwoodError
from sapwood.plan import Runner, SequenceResult, StepPlan, StepResult
from sapwood.sched import Scheduler
from sapwood.sched import Sequence as Running
from sapwood.types import Request, SamplingParams, SeqId, TokenLogprob

from ..document import tell
from ..rows import Goal, Measure, Row
from ..sizes import Size, sized
from ..stats import Pair

RUNNING = 64
SHARED, OWN = 128, 16
"""Tokens of each prompt that all share, and of its own: short contexts, so that a step of the model is short."""
_GOAL = Goal("ours", "at most", 3.0)


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Microseconds of one decode step; `model` is what the runner took."""

    schedule: float
    model: float
    apply: float

    @property
    def books(self) -> float:
        return self.schedule + self.apply


class NoModel:
    """A runner that draws the same token for everyone, at once."""

    def run(self, plan: StepPlan) -> StepResult:
        drawn = TokenLogprob(7, 0.0)
        return StepResult(
            plan.step,
            tuple(SequenceResult(work.seq, None if work.sample is None else drawn) for work in plan.works),
        )


def rows(size: Size) -> Iterator[Row]:
    running = sized(size, quick=4, normal=RUNNING)
    steps = sized(size, quick=3, normal=200)
    tell(f"cache: bookkeeping of {running} running sequences")
    alone = decode_steps(NoModel(), PrefixCache(_pages(steps)), running, steps)
    scenario = f"bookkeeping, {running} running"
    yield Row(
        f"{scenario}, schedule and apply",
        Measure("time per decode step", "µs", "lower"),
        [Pair(fmean(step.books for step in alone), None)],
        detail={
            "schedule": fmean(step.schedule for step in alone),
            "apply": fmean(step.apply for step in alone),
        },
    )
    if size != "quick":
        yield from _share_row(scenario, sized(size, quick=1, normal=40, full=200))


def decode_steps(runner: Runner, cache: PrefixCache, running: int, steps: int) -> list[StepTimes]:
    """The real scheduler and cache; the steps are those in which every sequence decodes one token."""
    scheduler = Scheduler(cache, SchedulerConfig(max_running=running, speculate="off"))
    for number in range(running):
        scheduler.add(_sequence(number, steps))
    times: list[StepTimes] = []
    while len(times) < steps:
        start = time.perf_counter_ns()
        plan = scheduler.schedule()
        scheduled = time.perf_counter_ns()
        assert plan is not None
        result = runner.run(plan)
        ran = time.perf_counter_ns()
        scheduler.apply(result)
        applied = time.perf_counter_ns()
        if len(plan.works) == plan.tokens == running:
            times.append(StepTimes((scheduled - start) / 1e3, (ran - scheduled) / 1e3, (applied - ran) / 1e3))
    return times


def _share_row(scenario: str, steps: int) -> Iterator[Row]:
    """Beside the default model, if it can be loaded here; else nothing, and stderr says why."""
    tell("cache: bookkeeping beside the default model")
    try:
        from sapwood.model import load_model

        memory = _pages(steps) * 64 * 1024  # more than a token's KV takes
        model = load_model(ModelConfig(kv_memory=memory), CacheConfig().page_size)
    except (ImportError, SapwoodError) as error:
        tell(f"cache: the share of a real decode step is left out, for the default model cannot run: {error}")
        return
    times = decode_steps(model.runner, PrefixCache(model.pages), RUNNING, steps)
    books, in_model = fmean(step.books for step in times), fmean(step.model for step in times)
    yield Row(
        f"{scenario}, beside {model.name}",
        Measure("share of a decode step", "%", "lower", _GOAL),
        [Pair(100 * books / (books + in_model), None)],
        detail={"model, ms per step": in_model / 1e3},
        remark=f"the model takes {in_model / 1e3:.0f} ms",
    )


def _pages(steps: int) -> int:
    return 2 * (SHARED + RUNNING * (OWN + steps + 8))


def _sequence(number: int, steps: int) -> Running:
    tokens = np.concatenate([np.arange(1, SHARED + 1), np.full(OWN, 1000 + number)]).astype(np.int32)
    most = 2 * steps + 8  # nobody ends
    params = SamplingParams(temperature=0.0, max_tokens=most)
    request = Request(str(number), tuple(tokens.tolist()), params)
    return Running(
        SeqId(number), request, Namespace("bench"), tokens, arrival=number, max_len=len(tokens) + most
    )
