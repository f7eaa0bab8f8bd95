"""Cosine and sine from additions and multiplications alone, so that every CPU and every library gives the same bits.

A rope table is part of what a model computes: a vectorised libm that differs in the last place would move logits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGEST = 2.0**19
"""Radians up to which the reduction by quarter turns is exact."""

# π/2 in two parts of 33 bits and the rest: a whole number of quarter turns up to 2²⁰ times a part is exact.
_QUARTER_HIGH = 1.57079632673412561417e00
_QUARTER_MIDDLE = 6.07710050630396597660e-11
_QUARTER_LOW = 2.02226624879595063154e-21

# Minimax polynomials on [-π/4, π/4] (fdlibm's k_sin and k_cos, Sun Microsystems 1993), highest power first.
_SIN = (1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06,
        -1.98412698298579493134e-04, 8.33333333332248946124e-03, -1.66666666666666324348e-01)  # fmt: skip
_COS = (-1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07,
        2.48015872894767294178e-05, -1.38888888888741095749e-03, 4.16666666666666019037e-02)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CosSin:
    """Float64, of the angles' shape; within two units in the last place."""

    cos: NDArray[np.float64]
    sin: NDArray[np.float64]


def cos_sin(angles: NDArray[np.float64]) -> CosSin:
    """Of `angles` in radians, from 0 to LARGEST. Raises ValueError beyond."""
    if angles.size and not 0 <= angles.min() <= angles.max() <= LARGEST:
        raise ValueError(f"angles must lie between 0 and {LARGEST}")
    turns = np.rint(angles * (1.0 / _QUARTER_HIGH))
    rest = ((angles - turns * _QUARTER_HIGH) - turns * _QUARTER_MIDDLE) - turns * _QUARTER_LOW
    square = rest * rest
    sin = rest + rest * square * _horner(_SIN, square)
    cos = 1.0 - (0.5 * square - square * square * _horner(_COS, square))
    quadrant = turns.astype(np.int64) % 4
    swapped = quadrant % 2 == 1
    cos, sin = np.where(swapped, sin, cos), np.where(swapped, cos, sin)
    return CosSin(np.where((quadrant == 1) | (quadrant == 2), -cos, cos), np.where(quadrant >= 2, -sin, sin))


def _horner(coefficients: tuple[float, ...], x: NDArray[np.float64]) -> NDArray[np.float64]:
    total = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total = total * x + c
    return total
