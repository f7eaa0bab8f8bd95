"""How long a step takes: what a cost model is asked, whatever it knows.

The simulator and the router ask; `flops` (a formula), `profile` (measured layers) and `fitted` (our own bench) answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class StepShape:
    """What one step computes, without its contents.

    Attributes:
        starts: int64 [works], tokens of context before each sequence's new ones.
        counts: int64 [works], its new tokens, at least 1.
        draws: sequences of which a token is drawn: rows of the output layer.
    """

    starts: NDArray[np.int64]
    counts: NDArray[np.int64]
    draws: int


class CostModel(Protocol):
    """Seconds, from a model of the hardware. A function of its arguments alone."""

    @property
    def name(self) -> str:
        """For people: what was modelled, from what."""
        ...

    def step_seconds(self, shape: StepShape) -> float:
        """Of one whole step."""
        ...

    def prefill_seconds(self, tokens: int, cached: int) -> float:
        """Of reading a prompt of `tokens` of which `cached` are there, alone: F(n, m) over the rate."""
        ...
