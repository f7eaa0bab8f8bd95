"""What bounds every kernel here, measured: how fast memory is read, and how fast numbers are multiplied."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sapwood.model.tensor import RawTensor

from ..rows import Measure, Row
from ..sizes import Size, sized
from ..stats import Pair
from .timing import Rounds, in_turns
from .weights import Shape, packed_copies

if TYPE_CHECKING:
    from sapwood.model.ops_native import NativeOps


@dataclass(frozen=True, slots=True)
class Floors:
    """The best that anyone reached, by who tried: bytes/s read from memory, operations/s in float32 and in 16 bits."""

    reading: Mapping[str, float]
    multiplying: Mapping[str, float]
    integers: Mapping[str, float]

    @property
    def bandwidth(self) -> float:
        return max(self.reading.values())

    @property
    def peak(self) -> float:
        """An estimate: nobody says that the best of these kernels is as good as can be."""
        return max(self.multiplying.values())

    @property
    def integer_peak(self) -> float:
        """An estimate too: only ours multiply 16-bit integers."""
        return max(self.integers.values())


def measure_floors(ops: NativeOps, torch: Any | None, size: Size) -> Floors:
    rounds = Rounds.of(size)
    return Floors(
        _reading(torch, size, rounds), _multiplying(ops, torch, size, rounds), _integers(ops, size, rounds)
    )


def rows_of(floors: Floors) -> Iterator[Row]:
    """The floors themselves, for the record."""
    for name, found, unit in (
        ("read", floors.reading, "GB/s"),
        ("multiply", floors.multiplying, "GFLOP/s"),
        ("multiply integers", floors.integers, "GOP/s"),
    ):
        measure = Measure(name, unit, "higher")
        detail = {who: value / 1e9 for who, value in found.items()}
        yield Row("floor", measure, [Pair(max(detail.values()), None)], detail=detail)


def _reading(torch: Any | None, size: Size, rounds: Rounds) -> dict[str, float]:
    """Arrays far larger than the last cache, read once from end to end (the copy also writes)."""
    count = sized(size, quick=2**20, normal=2**27)
    source, target = np.ones(count, np.float32), np.ones(count, np.float32)
    functions: dict[str, Callable[[], object]] = {
        "numpy dot": lambda: np.dot(source, source),
        "numpy copy": lambda: np.copyto(target, source),
    }
    moved = {"numpy dot": source.nbytes, "numpy copy": 2 * source.nbytes}
    if torch is not None:
        tensor = torch.from_numpy(source)
        functions["torch sum"] = lambda: tensor.sum()
        functions["torch dot"] = lambda: torch.dot(tensor, tensor)
        moved |= {"torch sum": source.nbytes, "torch dot": source.nbytes}
    taken = in_turns(functions, rounds)
    return {name: moved[name] / min(times) for name, times in taken.items()}


def _multiplying(ops: NativeOps, torch: Any | None, size: Size, rounds: Rounds) -> dict[str, float]:
    n = sized(size, quick=128, normal=1024)
    a, b = (np.random.default_rng(seed).standard_normal((n, n), np.float32) for seed in (1, 2))
    out = np.empty((n, n), np.float32)
    packed = ops.pack([RawTensor("square", "f32", n, n, b)])
    functions: dict[str, Callable[[], object]] = {
        "ours": lambda: ops.linear(a, packed, out),
        "numpy": lambda: np.matmul(a, b, out=out),
    }
    if torch is not None:
        ta, tb = torch.from_numpy(a), torch.from_numpy(b)
        functions["torch"] = lambda: torch.mm(ta, tb)
    taken = in_turns(functions, rounds)
    return {name: 2 * n**3 / min(times) for name, times in taken.items()}


def _integers(ops: NativeOps, size: Size, rounds: Rounds) -> dict[str, float]:
    """8-bit weights that the first cache holds once they are unpacked, and many rows."""
    rows, shape = sized(size, quick=16, normal=192), Shape(1024, 512)
    packed = packed_copies(ops, "q8_0", shape, 1)[0]
    x = np.random.default_rng(1).standard_normal((rows, shape.inputs), np.float32)
    out = np.empty((rows, shape.outputs), np.float32)
    taken = in_turns({"ours": lambda: ops.linear(x, packed, out)}, rounds)
    return {name: 2 * rows * shape.outputs * shape.inputs / min(times) for name, times in taken.items()}
