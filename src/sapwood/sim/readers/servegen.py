"""ServeGen's statistics of one client: how it asks in each 600 seconds, and how long its prompts and answers are.

    NAME-trace.csv      start s, requests/s, CV, family, two parameters of its gaps: 600,14.16,4.59,Weibull,0.445,0.048
    NAME-dataset.json   by start s: histograms of prompt and answer tokens, {"0": {"input_tokens": "{45: 0.01, …}"}}

Requests are drawn from them by seed. Nothing is known of their contents. Gaps have the stated family and shape; their
scale is the one that gives the stated rate, for the fitted scales miss it by half at times. (ServeGen, Alibaba 2025.)
"""

from __future__ import annotations

import ast
import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from sapwood.errors import UsageError
from sapwood.sim.readers.arrivals import CONTENTS, UNIT
from sapwood.sim.readers.builder import TraceBuilder
from sapwood.sim.readers.source import Line, Source
from sapwood.sim.readers.values import parsed
from sapwood.sim.trace import Trace, TraceRequest

SECONDS = 3600.0
"""How much of the time is drawn, from the first request on: whole files have millions."""

_MOST_A_SECOND = 1e5
"""Requests of one client."""


@dataclass(frozen=True, slots=True)
class _Window:
    start: float
    rate: float
    family: str
    shape: float


@dataclass(frozen=True, slots=True, eq=False)
class _Histogram:
    """Lengths int64 [n] and their chances float64 [n], which sum to 1."""

    lengths: NDArray[np.int64]
    chances: NDArray[np.float64]

    def draw(self, random: np.random.Generator, count: int) -> NDArray[np.int64]:
        return random.choice(self.lengths, count, p=self.chances)


@dataclass(frozen=True, slots=True)
class _Lengths:
    start: float
    prompts: _Histogram
    answers: _Histogram


def read_servegen(source: Source, *, seed: int = 0, seconds: float = SECONDS) -> Trace:
    """Of the first `seconds` in which requests come. Raises UsageError, naming the line at fault."""
    windows = [_window(source, line) for line in source.lines()]
    lengths = _dataset(source)
    busy = [window for window in windows if window.rate > 0]
    if not busy:
        raise UsageError(f"{source} has no 600 seconds in which requests come")
    first = busy[0].start
    random, builder = np.random.default_rng(seed), TraceBuilder(source.name.removesuffix("-trace"), UNIT)
    ends = [*(window.start for window in windows[1:]), windows[-1].start + 600.0]
    for window, end in zip(windows, ends, strict=True):
        if window.rate > 0 and window.start < first + seconds:
            _draw(builder, random, window, min(end, first + seconds), _at(lengths, window.start), first)
    builder.notes += [
        f"requests are drawn from statistics, seed {seed}: {seconds:g} s from second {first:g} on",
        "gaps have the stated family and shape, scaled to the stated rate",
    ]
    builder.assumed.append(CONTENTS)
    return builder.build()


def gaps(
    random: np.random.Generator, family: str, shape: float, rate: float, count: int
) -> NDArray[np.float64]:
    """float64 [count], seconds, of mean 1 / `rate`."""
    if family == "Gamma":
        return random.gamma(shape, 1 / (shape * rate), count)
    return random.weibull(shape, count) / (rate * math.gamma(1 + 1 / shape))


def _draw(
    builder: TraceBuilder,
    random: np.random.Generator,
    window: _Window,
    end: float,
    lengths: _Lengths,
    first: float,
) -> None:
    """Requests from the window's start, where one is due as if one had come just then, to its end."""
    span, times = end - window.start, np.empty(0)
    while not len(times) or times[-1] < span:
        more = gaps(random, window.family, window.shape, window.rate, 64 + int(span * window.rate))
        times = np.concatenate((times, (times[-1] if len(times) else 0.0) + np.cumsum(more)))
    times = times[times < span]
    prompts, answers = lengths.prompts.draw(random, len(times)), lengths.answers.draw(random, len(times))
    for time, prompt, answer in zip(times.tolist(), prompts.tolist(), answers.tolist(), strict=True):
        names = builder.fresh(-(-prompt // UNIT))
        at = window.start - first + time
        builder.add(TraceRequest(at, prompt, answer, names, prompt, builder.session(None)))


def _window(source: Source, line: Line) -> _Window:
    try:
        start, rate, _, family, first, second = next(csv.reader([line.text]))
        window = _Window(float(start), float(rate), family or "Gamma", float(first))
        fits = 0 <= window.rate < _MOST_A_SECOND and math.isfinite(window.start) and float(second) >= 0
        fits = fits and family in ("Gamma", "Weibull", "")
        if not fits or (window.rate > 0 and not (family and window.shape > 0)):
            raise ValueError
        return window
    except (ValueError, csv.Error):
        raise UsageError(
            f"{source.at(line.number)} is {line.text[:80]!r}; start, rate, CV, Gamma or Weibull and two parameters"
            " were expected"
        ) from None


def _dataset(source: Source) -> list[_Lengths]:
    """Of the file beside the trace. Raises UsageError if it is not there, or is none."""
    if source.called is not None:
        raise UsageError(
            f"{source} has the rates alone of ServeGen's requests; their lengths are in a file beside its -trace.csv",
            hint="give the -trace.csv by its name, with its -dataset.json beside it",
        )
    name = source.path.name
    beside = [source.path.with_name(name.replace("-trace.csv", "-dataset.json"))]
    beside += [Path(f"{beside[0]}.gz"), Path(str(beside[0]).removesuffix(".gz"))]
    found = next((path for path in beside if path.exists() and path != source.path), None)
    if found is None:
        raise UsageError(
            f"{beside[0]} is not there: it has the lengths of the requests",
            hint="put ServeGen's -dataset.json beside its -trace.csv",
        )
    text = "\n".join(line.text for line in Source(found).lines())
    try:
        parts = parsed(text)
        lengths = [_lengths(float(start), fields) for start, fields in parts.items() if _holds(fields)]
    except (ValueError, SyntaxError, LookupError, TypeError, AttributeError, ArithmeticError, MemoryError):
        raise UsageError(f"{found} holds no histograms of lengths by time") from None
    if not lengths:
        raise UsageError(f"{found} holds no histograms of lengths by time")
    return sorted(lengths, key=lambda each: each.start)


def _holds(fields: Mapping[str, str]) -> bool:
    """Whether there are lengths: of times in which nothing was asked there are none."""
    return bool(fields) and fields["input_tokens"] != "{}"


def _lengths(start: float, fields: Mapping[str, str]) -> _Lengths:
    return _Lengths(start, _histogram(fields["input_tokens"], 1), _histogram(fields["output_tokens"], 0))


def _histogram(text: str, least: int) -> _Histogram:
    counts = MappingProxyType(ast.literal_eval(text))
    lengths = np.array([*counts], np.int64)
    chances = np.array([*counts.values()], np.float64)
    if not len(lengths) or chances.min() < 0 or not chances.sum() > 0:
        raise ValueError
    return _Histogram(np.maximum(lengths, least), chances / chances.sum())


def _at(lengths: list[_Lengths], start: float) -> _Lengths:
    """Those of the part of the time that `start` is in, or of the nearest before it."""
    before = [each for each in lengths if each.start <= start]
    return before[-1] if before else lengths[0]
