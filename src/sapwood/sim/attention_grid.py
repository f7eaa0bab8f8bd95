"""Measured times of attention over a grid of four sizes, and what lies between its points."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sapwood.errors import UsageError
from sapwood.sim.cost import StepShape

COLUMNS = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
"""Of a profile, in the order of a Point's fields."""


class Point(NamedTuple):
    """What one call of attention did: a chunk of a prompt that was read, behind its context, and who decoded."""

    chunk: float
    context: float
    decoding: float
    their_context: float


class AttentionGrid:
    """Linear between the points, in each direction, and on beyond the last two.

    The grid is of sizes that double from one to the next; what was measured between them is left out. Raises
    UsageError if there is none.
    """

    def __init__(self, measured: Iterable[tuple[Point, float]]) -> None:
        times = {tuple(point): time for point, time in measured}
        points = np.array(list(times), np.float64).reshape(-1, 4)
        self._axes = [_doubling(column) for column in points.T] if len(points) else [[0.0]]
        if min(map(len, self._axes)) < 2:
            raise UsageError(
                "the attention profile is no grid of chunks, contexts, sequences and their contexts"
            )
        self._times = np.array(
            [
                [
                    [[_time(times, c, k, n, d) for d in self._axes[3]] for n in self._axes[2]]
                    for k in self._axes[1]
                ]
                for c in self._axes[0]
            ]
        )
        _fill(self._times)
        self._decoding: list[list[float]] = self._times[0, 0].tolist()

    def step(self, shape: StepShape) -> float:
        """Microseconds for one block in a step.

        Those that decode count with their mean context, as time is linear in it. Several chunks are counted one by
        one; what reading costs those that decode (they share a kernel) is that of one chunk of the same size.
        """
        if shape.draws == len(shape.counts) == int(shape.counts.sum()):
            return self.decoding(shape.draws, float(shape.starts.sum()) / shape.draws + 1)
        decode = shape.counts == 1
        decoding = int(decode.sum())
        their_context = float(shape.starts[decode].mean() + 1) if decoding else 0.0
        if decoding == len(shape.counts):
            return self.at(Point(0, 0, decoding, their_context))
        chunks, contexts = shape.counts[~decode], shape.starts[~decode]
        total = float(chunks.sum())
        behind = float((chunks * contexts).sum()) / total
        mixed = self.at(Point(total, behind, decoding, their_context)) - self.at(Point(total, behind, 0, 0))
        launch = self.at(Point(self._axes[0][1], 0, 0, 0))
        alone = [
            self.at(Point(*each, 0, 0)) - launch
            for each in zip(chunks.tolist(), contexts.tolist(), strict=True)
        ]
        return launch + sum(alone) + mixed

    def decoding(self, sequences: float, context: float) -> float:
        """Microseconds where nothing is read: what `at` gives, but quickly, as most steps are such."""
        (few, many, share), (short, long, further) = (
            _beside(self._axes[2], sequences),
            _beside(self._axes[3], context),
        )
        fewer, more = self._decoding[few], self._decoding[many]
        low = fewer[short] + share * (more[short] - fewer[short])
        high = fewer[long] + share * (more[long] - fewer[long])
        return low + further * (high - low)

    def at(self, point: Point) -> float:
        """Microseconds at any point."""
        block = self._times
        for axis, size in zip(self._axes, point, strict=True):
            below, above, share = _beside(axis, size)
            block = block[below] + share * (block[above] - block[below])
        return float(block)


def _beside(axis: list[float], size: float) -> tuple[int, int, float]:
    """Indices of the two points of a line that goes through a size, and how far along from the first it is."""
    above = min(max(1, bisect_left(axis, size)), len(axis) - 1)
    return above - 1, above, (size - axis[above - 1]) / (axis[above] - axis[above - 1])


def _doubling(sizes: NDArray[np.float64]) -> list[float]:
    """0, the smallest and all that is twice another of them."""
    chain: list[float] = []
    for size in np.unique(np.append(sizes, 0.0)).tolist():
        if len(chain) < 2 or size / 2 in chain:
            chain.append(size)
    return chain


def _time(times: Mapping[tuple[float, ...], float], c: float, k: float, n: float, d: float) -> float:
    """Where nothing is read its context does not matter, and where nobody decodes neither does theirs."""
    if not c and not n:
        return 0.0
    return times.get((c, k if c else 0.0, n, d if n else 0.0), np.nan)


def _fill(times: NDArray[np.float64]) -> None:
    """What was not measured: a context of 0 is as the smallest; more sequences than measured go on in a line."""
    first = times[:, :, 1:, 0]
    first[np.isnan(first)] = times[:, :, 1:, 1][np.isnan(first)]
    last, before, earlier = times[:, :, -1], times[:, :, -2], times[:, :, -3]
    missing = np.isnan(last)
    last[missing] = (before + 2 * (before - earlier))[missing]
    if np.isnan(times).any():
        raise UsageError(f"the attention profile lacks {int(np.isnan(times).sum())} points of its grid")
