"""`bench step`: the share of Python in a decode step of the default model."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import fields

from sapwood.errors import SapwoodError

from ..document import Output, emit, make_document, tell
from ..errors import BenchError
from ..noise import Moment
from ..rows import Goal, Measure, Row
from ..sizes import Size, sized
from ..stats import Pair, median
from .anatomy import Stage, StepTimes

RUNNING = (1, 8)
CONTEXTS = (50, 1500)
MEASURE = Measure("Python outside kernels", "% of the step", "lower", Goal("ours", "at most", 10.0))


def run(options: argparse.Namespace) -> int:
    before = Moment.now()
    try:
        stage = Stage(tokens=8192)
    except (ImportError, SapwoodError) as error:
        raise BenchError(f"the default model cannot run here: {error}") from error
    found = list(rows(stage, options.size))
    regime = {"suite": "step", "size": options.size, "model": stage.model, "sampling": "greedy"}
    emit(make_document(regime, found, before, options.typed), Output(options.out, options.json))
    return 0


def rows(stage: Stage, size: Size) -> Iterator[Row]:
    contexts = sized(size, quick=CONTEXTS[:1], normal=CONTEXTS)
    rounds, steps = sized(size, quick=1, normal=5, full=20), sized(size, quick=3, normal=30)
    cases = [(running, context) for context in contexts for running in RUNNING]
    taken: dict[tuple[int, int], list[list[StepTimes]]] = {case: [] for case in cases}
    for number in range(rounds):  # In turns, so that a noisy minute is everyone's.
        tell(f"step: round {number + 1} of {rounds}")
        for case in cases:
            taken[case].append(stage.decode(*case, steps))
    for running, context in cases:
        yield row(running, context, taken[running, context])


def row(running: int, context: int, taken: Sequence[Sequence[StepTimes]]) -> Row:
    """Its pairs are the rounds: of each the median share over its steps."""
    steps = [step for each in taken for step in each]
    parts = {
        f"{part.name}, µs": median([getattr(step, part.name) for step in steps]) for part in fields(StepTimes)
    }
    whole = median([step.whole for step in steps])
    python = median([step.python for step in steps])
    return Row(
        f"decode step, {running} running, context {context}",
        MEASURE,
        [Pair(median([100 * step.python / step.whole for step in each]), None) for each in taken],
        regime={"running": running, "context": context},
        detail={**parts, "python, µs": python, "step, µs": whole},
        remark=f"{python / 1e3:.2f} of {whole / 1e3:.1f} ms",
    )
