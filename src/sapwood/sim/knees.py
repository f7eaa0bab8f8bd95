"""Where a curve bends: the capacities up to which more memory pays, and from which it hardly does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SENSITIVITY = 1.0


def knees(capacities: Sequence[int], rates: Sequence[float], sensitivity: float = SENSITIVITY) -> list[int]:
    """Places in a rising curve, given by ascending capacities, that are knees; none in a straight or flat one.

    Kneedle (Satopää, Albrecht, Irwin and Raghavan, "Finding a 'kneedle' in a haystack", ICDCS workshops 2011), without
    smoothing: both axes are scaled to 0 .. 1, and a local maximum of the curve above the diagonal is a knee if the
    curve comes down to the diagonal by `sensitivity` mean steps before it rises to the next.
    """
    x, y = _scaled(capacities), _scaled(rates)
    if len(x) < 3 or x[-1] == 0 or y.max() == 0:
        return []
    above = y - x
    enough = sensitivity * float(np.diff(x).mean())
    peaks = [at for at in range(1, len(x) - 1) if above[at - 1] < above[at] >= above[at + 1]]
    ends = [*peaks, len(x)][1:]
    return [
        peak
        for peak, end in zip(peaks, ends, strict=True)
        if above[peak + 1 : end].min() < above[peak] - enough
    ]


def _scaled(values: Sequence[float]) -> NDArray[np.float64]:
    column = np.asarray(values, np.float64)
    if len(column) == 0 or column.max() == column.min():
        return np.zeros(len(column))
    return np.asarray((column - column.min()) / (column.max() - column.min()))
