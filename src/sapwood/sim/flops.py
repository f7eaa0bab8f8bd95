"""Time from a formula: operations over the rate that is reached, or bytes over bandwidth, whichever is longer.

    F(n, m) = 2 P (n - m) + 2 L n_h d_h (n² - m²)

for a prompt of n tokens of which m are cached: P parameters, L layers of n_h query heads of d_h numbers. The second
term is the attention of the n - m new tokens over all before them, causally.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sapwood.sim.cost import StepShape
from sapwood.sim.hardware import Hardware
from sapwood.sim.model_shape import ModelShape


@dataclass(frozen=True, slots=True)
class FlopCost:
    """A cost model from data sheets alone: knows nothing of kernels, launches or a batch too small for its device."""

    model: ModelShape
    hardware: Hardware

    @property
    def name(self) -> str:
        return f"F(n, m) of {self.model.name} on {self.hardware.name} at {self.hardware.mfu:.0%} MFU"

    def flops(self, tokens: int, cached: int) -> float:
        """F(n, m)."""
        attention = self.model.layers * self.model.heads * self.model.head_dim
        return 2.0 * self.model.active * (tokens - cached) + 2.0 * attention * (tokens**2 - cached**2)

    def prefill_seconds(self, tokens: int, cached: int) -> float:
        return self.flops(tokens, cached) / self.hardware.flops

    def prefill_seconds_each(
        self, tokens: NDArray[np.int64], cached: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """float64 [n], of many prompts, each alone."""
        attention = float(self.model.layers * self.model.heads * self.model.head_dim)
        n, m = tokens.astype(np.float64), cached.astype(np.float64)
        flops = 2.0 * self.model.active * (n - m) + 2.0 * attention * (n * n - m * m)
        return np.asarray(flops / self.hardware.flops)

    def step_seconds(self, shape: StepShape) -> float:
        """The longer of arithmetic and traffic: all weights once, and the KV of every sequence.

        The output layer is taken to be multiplied with each token, as in F(n, m), drawn from or not.
        """
        ends = shape.starts + shape.counts
        arithmetic = float(self.prefill_seconds_each(ends, shape.starts).sum())
        kv = float(ends.sum()) * self.model.kv_bytes_per_token
        return max(arithmetic, (self.model.bytes_of_weights + kv) / self.hardware.bandwidth)
