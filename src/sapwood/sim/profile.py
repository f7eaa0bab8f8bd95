"""How long a step takes on hardware of which the layers were measured one by one, as LLMServingSim does for vLLM.

    dense         of each layer, by the tokens of a step
    attention     by the tokens of the chunk that is read, its context, the sequences that decode, and theirs
    per_sequence  of what is done for each token that is drawn: the output layer and the sampler

A step is the sum of its layers: the host's work is taken to be hidden behind them, as with asynchronous scheduling.
Source: Cho et al., "LLMServingSim: A HW/SW Co-Simulation Infrastructure for LLM Inference Serving at Scale" (2024).
"""

from __future__ import annotations

import csv
import gzip
import math
import os
import zlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from sapwood.errors import UsageError
from sapwood.sim.attention_grid import COLUMNS, AttentionGrid, Point
from sapwood.sim.cost import StepShape

_ONCE = frozenset({"embedding", "final_layernorm"})
"""Dense layers that a step passes once; all others belong to each block."""
_PER_BLOCK = MappingProxyType({"layernorm": 2})
"""Of those measured once for several in a block."""
_MICRO = 1e-6
_LEAST_SIZES = 2
"""A line goes through as many."""
_DAMAGED = (ValueError, LookupError, TypeError, ArithmeticError)

Table = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class LayerProfile:
    """Measured layers, in microseconds.

    Attributes:
        dense, per_sequence: by the layer's name: float64 [2, sizes], sizes (ascending) and times.
    """

    name: str
    dense: Mapping[str, Table]
    per_sequence: Mapping[str, Table]
    attention: AttentionGrid

    @classmethod
    def read(cls, prefix: str | Path) -> LayerProfile:
        """From PREFIX_dense.csv, PREFIX_attention.csv and PREFIX_per_sequence.csv, gzipped or not.

        Raises UsageError if one is missing or is no such table.
        """
        try:
            return cls._read(prefix)
        except (*_DAMAGED, csv.Error, EOFError, OSError, zlib.error) as error:
            raise UsageError(
                f"the files of the layer profile {prefix} cannot be read: {error}",
                hint="one is cut or damaged; get them again",
            ) from None

    @classmethod
    def _read(cls, prefix: str | Path) -> LayerProfile:
        points = [
            (Point(*(_amount(int(row[name])) for name in COLUMNS)), _amount(row["time_us"]))
            for row in _rows(prefix, "attention", (*COLUMNS, "time_us"))
        ]
        dense = _tables(prefix, "dense", "tokens")
        return cls(
            Path(prefix).name, dense, _tables(prefix, "per_sequence", "sequences"), AttentionGrid(points)
        )


def is_profile(prefix: str | Path) -> bool:
    """Whether the three files of a profile are to be expected there."""
    return any(os.path.exists(f"{prefix}_dense.csv{packed}") for packed in ("", ".gz"))


def profiles_in(folder: Path) -> list[str]:
    """What the files of each profile share that lies in a folder, with the folder."""
    found = [path for packed in ("", ".gz") for path in folder.glob(f"*_dense.csv{packed}")]
    return sorted({str(path.with_name(path.name.split("_dense.csv")[0])) for path in found})


class ProfileCost:
    """Implements CostModel. Args: `blocks`: transformer blocks of the model, each of which was measured once."""

    def __init__(self, profile: LayerProfile, blocks: int) -> None:
        self.name = f"layers measured on {profile.name}, {blocks} blocks"
        self._blocks = blocks
        self._attention = profile.attention
        self._dense = _Curve(
            [
                (table, 1 if layer in _ONCE else blocks * _PER_BLOCK.get(layer, 1))
                for layer, table in profile.dense.items()
            ]
        )
        self._drawing = _Curve([(table, 1) for table in profile.per_sequence.values()])

    def step_seconds(self, shape: StepShape) -> float:
        micro = self._dense.at(int(shape.counts.sum())) + self._blocks * self._attention.step(shape)
        if shape.draws:
            micro += self._drawing.at(shape.draws)
        return micro * _MICRO

    def prefill_seconds(self, tokens: int, cached: int) -> float:
        """In one step, that draws the first token."""
        starts, counts = np.array([cached]), np.array([max(1, tokens - cached)])
        return self.step_seconds(StepShape(starts, counts, 1))


class _Curve:
    """A weighted sum of measured times by size: exact where measured, linear between, and beyond the last two."""

    def __init__(self, weighted: list[tuple[Table, int]]) -> None:
        sizes = np.unique(np.concatenate([table[0] for table, _ in weighted]))
        times = np.sum([weight * np.interp(sizes, *table) for table, weight in weighted], axis=0)
        self._sizes: list[float] = sizes.tolist()
        self._times: list[float] = times.tolist()

    def at(self, size: int) -> float:
        sizes, times = self._sizes, self._times
        at = min(max(1, bisect_left(sizes, size)), len(sizes) - 1)
        slope = (times[at] - times[at - 1]) / (sizes[at] - sizes[at - 1])
        return times[at] + slope * (max(size, sizes[0]) - sizes[at])


def _tables(prefix: str | Path, kind: str, size: str) -> dict[str, Table]:
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in _rows(prefix, kind, ("layer", size, "time_us")):
        found[row["layer"]].append((_amount(row[size]), _amount(row["time_us"])))
    if few := [layer for layer, points in found.items() if len(dict(points)) < _LEAST_SIZES]:
        raise ValueError(f"{few[0]} was measured with one number of {size} alone; two or more were expected")
    if not found:
        raise ValueError(f"no layer was measured by its number of {size}")
    return {layer: np.array(sorted(points)).T for layer, points in found.items()}


def _amount(value: str | float) -> float:
    amount = float(value)
    if not 0 <= amount < math.inf:
        raise ValueError(f"{value} is neither a time nor a number of tokens or sequences")
    return amount


def _rows(prefix: str | Path, kind: str, columns: tuple[str, ...]) -> Iterator[Mapping[str, str]]:
    plain = Path(f"{prefix}_{kind}.csv")
    path = plain if plain.exists() else Path(f"{plain}.gz")
    if not path.exists():
        raise UsageError(
            f"{plain} is not there, nor {path.name}", hint="name a profile by what its three files share"
        )
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        reader = csv.DictReader(file)
        if not set(columns) <= set(reader.fieldnames or ()):
            raise UsageError(
                f"{path} has the columns {reader.fieldnames}; {', '.join(columns)} were expected"
            )
        yield from reader
