"""What is asked of replicas against what they can do: whether they keep up at all, however long one looks on."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sapwood.config import SchedulerConfig
from sapwood.sim.cost import CostModel, StepShape
from sapwood.sim.trace import Trace


def busy_seconds(
    trace: Trace, reused: NDArray[np.int64], cost: CostModel, scheduler: SchedulerConfig, pool_tokens: int
) -> float:
    """Of one replica that serves all of it in full steps: about the least that it takes.

    A step reads and draws `chunk_tokens` at most, for as many sequences as may run and as the pool holds, and its
    shape is the mean of the trace. `reused` int64 [n], of each prompt.
    """
    read, drawn = trace.prompt_tokens - reused, np.maximum(trace.output_tokens - 1, 0)
    reading, drawing = int(read.sum()), int(drawn.sum())
    if not reading + drawing:
        return 0.0
    held = (trace.prompt_tokens + trace.output_tokens).mean()
    running = max(1, min(scheduler.max_running, int(pool_tokens / held)))
    steps = max((reading + drawing) / scheduler.chunk_tokens, drawing / running)
    starts: list[int] = []
    counts: list[int] = []
    if drawing:
        sequences = max(1, round(drawing / steps))
        context = float((drawn * (trace.prompt_tokens + trace.output_tokens / 2)).sum()) / drawing
        starts += [round(context)] * sequences
        counts += [1] * sequences
    if reading:
        prompts = max(1, round(len(trace) / steps))
        each = max(1, round(reading / steps / prompts))
        context = float((read * (trace.prompt_tokens + reused) / 2).sum()) / reading
        starts += [max(0, round(context - each / 2))] * prompts
        counts += [each] * prompts
    shape = StepShape(np.array(starts, np.int64), np.array(counts, np.int64), len(counts))
    return (reading + drawing) / sum(counts) * cost.step_seconds(shape)


def keeping_up(load: float, replicas: int) -> int:
    """About as many replicas as keep up, where so many are asked for `load` times what they can compute.

    Each would reuse as much as it does, though more replicas may reuse more or less.
    """
    return math.floor(load * replicas) + 1
