"""Rotary position embedding: which frequencies a model turns its queries and keys by."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Literal

import numpy as np

from sapwood.errors import ModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray

RopeScaling = Literal["none", "linear", "ntk", "yarn", "llama3", "longrope"]


@dataclass(frozen=True, slots=True)
class RopeFrequencies:
    """`inverse` is float64 [dim / 2], radians per position; `attention_scale` multiplies cos and sin."""

    inverse: NDArray[np.float64]
    attention_scale: float


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary embedding in half-split order: value j is turned together with value j + dim / 2.

    Attributes:
        theta: base of the frequencies.
        dim: how many leading values of a head are turned; even.
        scaling: how the frequencies are stretched beyond the trained context.
        factor: the stretch (all scalings but `none`).
        original_max_position: trained context (ntk, yarn, llama3, longrope).
        low_freq_factor, high_freq_factor: llama3's edges, in wavelengths per trained context.
        beta_fast, beta_slow: yarn's edges, in rotations per trained context.
        attention_factor: yarn's or longrope's multiplier of cos and sin; None derives it from `factor`.
        truncate: yarn rounds its edges to whole dimensions.
        freq_factors: divisors of the frequencies (`rope_freqs.weight` of a GGUF file, longrope's factors), or None.
    """

    theta: float
    dim: int
    scaling: RopeScaling = "none"
    factor: float = 1.0
    original_max_position: int | None = None
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    truncate: bool = True
    freq_factors: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        needs_context = self.scaling in ("ntk", "yarn", "llama3", "longrope")
        checks = (
            ("theta", math.isfinite(self.theta) and self.theta > 1.0, "a finite number above 1"),
            ("dim", self.dim >= 2 and self.dim % 2 == 0, "even and at least 2"),
            ("dim", self.scaling != "ntk" or self.dim > 2, "above 2 for NTK scaling"),
            ("factor", math.isfinite(self.factor) and self.factor > 0, "a finite number above 0"),
            ("factor", self.scaling != "ntk" or self.factor >= 1, "at least 1 for NTK scaling"),
            (
                "original_max_position",
                not needs_context or (self.original_max_position or 0) > 0,
                f"set for {self.scaling} scaling",
            ),
            (
                "original_max_position",
                self.scaling != "longrope" or self.original_max_position != 1,
                "above 1",
            ),
            ("high_freq_factor", 0 < self.low_freq_factor < self.high_freq_factor, "above low_freq_factor"),
            (
                "beta_fast",
                0 < self.beta_slow <= self.beta_fast < math.inf,
                "at least beta_slow, both above 0",
            ),
            ("freq_factors", self._sound_factors(), f"{self.dim // 2} finite numbers above 0"),
        )
        for name, valid, expected in checks:
            if not valid:
                raise ModelError(f"the rope's {name} is {getattr(self, name)!r}; it must be {expected}")

    def frequencies(self) -> RopeFrequencies:
        """The frequencies by transformers' formulas, evaluated in float64.

        `ntk` is the dynamic NTK formula fixed at the full stretched length, factor × trained context: one
        that moved with the sequence would belie stored keys. It equals transformers' at that length only.
        """
        inverse = self._plain_inverse(self._base())
        scale = 1.0
        if self.scaling == "linear":
            inverse = inverse / self.factor
        elif self.scaling == "yarn":
            inverse, scale = self._yarn(inverse), self._yarn_attention()
        elif self.scaling == "llama3":
            inverse = self._llama3(inverse)
        elif self.scaling == "longrope":
            scale = self._longrope_attention()
        if self.freq_factors is not None:
            inverse = inverse / np.asarray(self.freq_factors, dtype=np.float64)
        return RopeFrequencies(inverse, scale)

    def _sound_factors(self) -> bool:
        factors = self.freq_factors
        return factors is None or (
            len(factors) == self.dim // 2 and all(math.isfinite(f) and f > 0 for f in factors)
        )

    def _base(self) -> float:
        if self.scaling != "ntk":
            return self.theta
        stretch = self.factor * self.factor - (self.factor - 1.0)
        return float(self.theta * stretch ** (self.dim / (self.dim - 2)))

    def _plain_inverse(self, base: float) -> NDArray[np.float64]:
        """base^(-2i / dim), by decimal arithmetic: a library's power may differ in the last place by CPU."""
        with localcontext() as context:
            context.prec = 40
            powers = [Decimal(base) ** (Decimal(-2 * i) / self.dim) for i in range(self.dim // 2)]
        return np.array([float(power) for power in powers])

    def _llama3(self, inverse: NDArray[np.float64]) -> NDArray[np.float64]:
        """Long waves are stretched, short ones kept, those between blended (Llama 3.1's rule)."""
        context = float(self.original_max_position or 0)
        waves_per_context = context * inverse / (2.0 * math.pi)
        blend = (waves_per_context - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        blend = np.clip(blend, 0.0, 1.0)
        return (1.0 - blend) * inverse / self.factor + blend * inverse

    def _yarn(self, inverse: NDArray[np.float64]) -> NDArray[np.float64]:
        """YaRN (arXiv 2309.00071): a ramp over the dimensions from unscaled (fast) to interpolated (slow)."""
        low, high = self._yarn_dimension(self.beta_fast), self._yarn_dimension(self.beta_slow)
        if self.truncate:
            low, high = float(math.floor(low)), float(math.ceil(high))
        low, high = max(low, 0.0), min(high, self.dim - 1.0)
        width = high - low if high != low else 0.001
        ramp = np.clip((np.arange(self.dim // 2, dtype=np.float64) - low) / width, 0.0, 1.0)
        return inverse / self.factor * ramp + inverse * (1.0 - ramp)

    def _yarn_dimension(self, rotations: float) -> float:
        """The dimension that turns `rotations` times over the trained context."""
        context = float(self.original_max_position or 0)
        return self.dim * math.log(context / (rotations * 2.0 * math.pi)) / (2.0 * math.log(self.theta))

    def _longrope_attention(self) -> float:
        """LongRoPE (arXiv 2402.13753): √(1 + ln(factor) / ln(trained context)), 1 where nothing is stretched."""
        if self.attention_factor is not None:
            return self.attention_factor
        context = float(self.original_max_position or 0)
        return math.sqrt(1.0 + math.log(self.factor) / math.log(context)) if self.factor > 1.0 else 1.0

    def _yarn_attention(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        return yarn_attention_scale(self.factor)


def yarn_attention_scale(factor: float, weight: float = 1.0) -> float:
    """YaRN's temperature for a stretch: 0.1 · weight · ln(factor) + 1, and 1 where nothing is stretched."""
    return 1.0 if factor <= 1.0 else 0.1 * weight * math.log(factor) + 1.0
