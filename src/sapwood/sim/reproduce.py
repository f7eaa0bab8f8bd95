"""The simulation of the source text, run again: its figures beside ours, and beside them what it leaves out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice

import numpy as np
from numpy.typing import NDArray

from sapwood.sim.chat import ChatWorkload, draw_chat, synthetic_chat
from sapwood.sim.flops import FlopCost
from sapwood.sim.hardware import hardware_named
from sapwood.sim.known_models import shape_named
from sapwood.sim.listing import BlockCache, LeafFirst, ListingCache, serve_on_time, serve_window
from sapwood.sim.optimum import Optimum
from sapwood.sim.text_figures import LEFT_OUT, OF_THE_TEXT, Experiment, Measure, TextFigure
from sapwood.sim.trace import Trace
from sapwood.sim.workers import in_parallel

THE_TEXTS_CHAT = ChatWorkload()
TEXT_REQUESTS, TEXT_PROMPT_TOKENS = 1603, 3.44e6
ALIKE = 0.02
"""How far a trace may be from the text's, in requests and in prompt tokens, to stand for it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one experiment on one trace."""

    hit_rate: float
    """Prompt tokens reused per prompt token, %."""
    prefill_ms: float
    """Of a request, on average: F(n, m), alone."""
    choices: float = 0.0
    """Requests that were taken while another waited, %."""


@dataclass(frozen=True, slots=True)
class SeedOutcomes:
    """All experiments on the traces of one seed."""

    requests: int
    prompt_tokens: int
    of: Mapping[Experiment, Outcome]

    def figure(self, figure: TextFigure) -> float:
        value = self._measured(figure.experiment, figure.measure)
        return value if figure.minus is None else value - self._measured(figure.minus, figure.measure)

    def _measured(self, experiment: Experiment, measure: Measure) -> float:
        if measure == "requests":
            return self.requests
        if measure == "prompt tokens":
            return self.prompt_tokens / 1e6
        outcome = self.of[experiment]
        values = {"hit rate": outcome.hit_rate, "prefill": outcome.prefill_ms, "choices": outcome.choices}
        return values[measure]


@dataclass(frozen=True, slots=True)
class Row:
    """A figure. `text` and `difference` are None for what the text leaves out."""

    name: str
    text: float | None
    ours: float
    """Mean over the seeds."""
    deviation: float
    """Between the seeds."""
    unit: str

    @property
    def difference(self) -> float | None:
        return None if self.text is None else self.ours - self.text


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The text's figures and ours, in the text's order."""

    seeds: tuple[int, ...]
    worked: tuple[Row, ...]
    rows: tuple[Row, ...]
    left_out: tuple[Row, ...]

    @property
    def max_difference(self) -> float:
        """Of the hit rates, in points, without a sign."""
        return max(abs(row.difference or 0.0) for row in self.rows if row.unit == "%")


def the_texts_cost() -> FlopCost:
    """Llama 3 8B on an H100 at half its peak."""
    return FlopCost(shape_named("llama-3-8b"), hardware_named("h100"))


def reproduce(
    seeds: Sequence[int],
    workload: ChatWorkload = THE_TEXTS_CHAT,
    *,
    workers: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Reproduction:
    """Runs every experiment on the chats of every seed, in parallel processes."""
    of_seed = partial(run_seed, workload)
    outcomes = in_parallel(of_seed, tuple(seeds), workers=workers, progress=progress, what="seeds")
    return Reproduction(
        tuple(seeds),
        tuple(worked_example(the_texts_cost())),
        tuple(_row(figure, outcomes) for figure in OF_THE_TEXT),
        tuple(_row(figure, outcomes) for figure in LEFT_OUT),
    )


def seeds_like_the_text(wanted: int) -> tuple[int, ...]:
    """The first whose trace is within 2 % of the text's in requests and in prompt tokens: nothing else is looked at.

    The text prints one draw, whose prompts are shorter than most: 2,147 tokens on average, where a seed has
    2,415 ± 167. Times and hit rates go with that.
    """
    return tuple(islice(filter(_is_alike, count()), wanted))


def run_seed(workload: ChatWorkload, seed: int) -> SeedOutcomes:
    """Every experiment that a figure asks for, once."""
    wanted = {
        each
        for figure in (*OF_THE_TEXT, *LEFT_OUT)
        for each in (figure.experiment, figure.minus)
        if each is not None
    }
    traces = {
        key: synthetic_chat(replace(workload, adapters=key[0], unit_tokens=key[1]), seed)
        for key in {(each.adapters, each.block_tokens) for each in wanted}
    }
    cost = the_texts_cost()
    outcomes = {each: run_experiment(each, traces[each.adapters, each.block_tokens], cost) for each in wanted}
    [first, *_] = traces.values()
    return SeedOutcomes(len(first), int(first.prompt_tokens.sum()), outcomes)


def run_experiment(experiment: Experiment, trace: Trace, cost: FlopCost) -> Outcome:
    """`trace` has the experiment's adapters, and its blocks as unit."""
    choices = 0
    if experiment.cache == "none":
        reused = np.zeros(len(trace), np.int64)
    elif experiment.cache == "optimum":
        reused = _best(trace, experiment.capacity_tokens or 0)
    elif experiment.clock:
        timely = serve_on_time(trace, _cache(experiment), experiment.order, cost)
        reused, choices = timely.reused, timely.choices
    else:
        reused = serve_window(trace, _cache(experiment), experiment.order)
    return Outcome(
        hit_rate=100 * float(reused.sum() / trace.prompt_tokens.sum()),
        prefill_ms=1e3 * float(cost.prefill_seconds_each(trace.prompt_tokens, reused).mean()),
        choices=100 * choices / len(trace),
    )


def worked_example(cost: FlopCost) -> Iterator[Row]:
    """A prompt of 1,600 tokens, of which the whole blocks of the first 1,500 are cached, or none."""
    n, m = 1600, 1500 // 16 * 16
    cold, warm = cost.flops(n, 0), cost.flops(n, m)
    for name, text, ours, unit in (
        ("F(1600, 0)", 26.37, cold / 1e12, "TFLOP"),
        ("F(1600, 0), time", 53.3, 1e3 * cost.prefill_seconds(n, 0), "ms"),
        ("F(1600, 1488)", 1.89, warm / 1e12, "TFLOP"),
        ("F(1600, 1488), time", 3.8, 1e3 * cost.prefill_seconds(n, m), "ms"),
        ("times faster", 14.0, cold / warm, "×"),
        ("memory of 1,488 tokens", 195.0, m * cost.model.kv_bytes_per_token / 1e6, "MB"),
    ):
        yield Row(name, text, ours, 0.0, unit)


def _is_alike(seed: int) -> bool:
    draw = draw_chat(THE_TEXTS_CHAT, seed)
    return (
        abs(len(draw) / TEXT_REQUESTS - 1) <= ALIKE
        and abs(float(draw.prompt_tokens.sum()) / TEXT_PROMPT_TOKENS - 1) <= ALIKE
    )


def _cache(experiment: Experiment) -> BlockCache:
    tokens = experiment.capacity_tokens
    blocks = None if tokens is None else tokens // experiment.block_tokens
    if experiment.cache == "leaf-first" and blocks is not None:
        return LeafFirst(blocks)
    return ListingCache(blocks)


def _best(trace: Trace, capacity_tokens: int) -> NDArray[np.int64]:
    """What no eviction could better, served in the order of arrival, with no room for what is running."""
    found = Optimum(trace, beside=False).matched(capacity_tokens)
    return np.asarray(np.minimum(found, trace.prompt_tokens // trace.unit_tokens) * trace.unit_tokens)


def _row(figure: TextFigure, outcomes: Sequence[SeedOutcomes]) -> Row:
    values = np.array([outcome.figure(figure) for outcome in outcomes])
    return Row(figure.name, figure.text, float(values.mean()), float(values.std()), figure.unit)
