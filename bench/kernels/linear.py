"""Products with weights, by format, shape and rows: ours against the better of two BLAS in float32.

For block weights also the ladder: the twin in numpy, then the float32 kernel, then the integer one, which is ours."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sapwood.model.ops_reference import ReferenceOps
from sapwood.model.tensor import BLOCK_BYTES, TensorFormat

from ..document import tell
from ..rows import Goal, Measure, Row
from ..sizes import Size, sized
from ..stats import Pair, median
from .blas import numpy_linear, torch_linear
from .floors import Floors
from .timing import Rounds, in_turns
from .weights import Shape, float_copies, packed_copies

if TYPE_CHECKING:
    from sapwood.model.ops_native import NativeOps

FORMATS: tuple[TensorFormat, ...] = ("f32", "q8_0", "q4_1")
SHAPES = (Shape(1536, 576), Shape(576, 1536), Shape(960, 576), Shape(49152, 576), Shape(4096, 2048))
"""Of the default model: gate, down, qkv, the output layer; and one of a larger model."""
MANY_ROWS = 64


@dataclass(frozen=True, slots=True)
class Operands:
    """One shape: our packed weights, the same many bytes of float32 for BLAS, and the rows to multiply."""

    packed: Sequence[Any]
    packed_f32: Sequence[Any]
    """For compute f32; empty where that is no other way."""
    floats: Sequence[NDArray[np.float32]]
    x: NDArray[np.float32]
    out: NDArray[np.float32]

    def first(self, rows: int) -> Operands:
        return Operands(self.packed, self.packed_f32, self.floats, self.x[:rows], self.out[:rows])


def rows(ops: NativeOps, torch: Any | None, floors: Floors, size: Size) -> Iterator[Row]:
    counts = sized(size, quick=(1, 4), normal=(1, 2, 4, 8, 16, 64, 256, 512))
    in_f32 = type(ops)(ops.threads, "f32")
    shapes = sized(size, quick=(Shape(64, 96),), normal=SHAPES)
    enough = sized(size, quick=2**16, normal=2**27)
    for shape in shapes:
        floats = float_copies(shape, enough)
        x = np.random.default_rng(1).standard_normal((max(counts), shape.inputs), np.float32)
        out = np.empty((max(counts), shape.outputs), np.float32)
        for format in FORMATS:
            tell(f"linear {format} {shape}")
            other = packed_copies(in_f32, format, shape, enough) if format in BLOCK_BYTES else ()
            operands = Operands(packed_copies(ops, format, shape, enough), other, floats, x, out)
            twin = _twin_rate(format, shape) if other else None
            for count in counts:
                taken = in_turns(_functions(ops, in_f32, torch, operands.first(count)), Rounds.of(size))
                yield from _rows(format, shape, count, operands.packed[0].nbytes, taken, floors, twin)


def _twin_rate(format: TensorFormat, shape: Shape) -> float:
    """Operations/s of the reference ops, from one call with four rows."""
    twin = ReferenceOps()
    packed = packed_copies(twin, format, shape, 1)[0]
    x = np.random.default_rng(1).standard_normal((4, shape.inputs), np.float32)
    out = np.empty((4, shape.outputs), np.float32)
    start = time.perf_counter()
    twin.linear(x, packed, out)
    return 2 * 4 * shape.outputs * shape.inputs / (time.perf_counter() - start)


def _functions(
    ops: NativeOps, in_f32: NativeOps, torch: Any | None, operands: Operands
) -> dict[str, Callable[[], object]]:
    turn, other = cycle(operands.packed), cycle(operands.packed_f32)
    functions: dict[str, Callable[[], object]] = {
        "ours": lambda: ops.linear(operands.x, next(turn), operands.out),
        "numpy": numpy_linear(operands.x, operands.floats, operands.out),
    }
    if operands.packed_f32:
        functions["ours f32"] = lambda: in_f32.linear(operands.x, next(other), operands.out)
    if torch is not None:
        functions["torch"] = torch_linear(torch, operands.x, operands.floats, operands.out)
    return functions


def _rows(
    format: TensorFormat,
    shape: Shape,
    count: int,
    nbytes: int,
    taken: Mapping[str, list[float]],
    floors: Floors,
    twin: float | None,
) -> Iterator[Row]:
    scenario = f"linear {format} {shape}, {count} rows"
    work = 2 * count * shape.outputs * shape.inputs
    rates = {who: [work / seconds / 1e9 for seconds in times] for who, times in taken.items()}
    ours = rates.pop("ours")
    ladder = {} if twin is None else {"reference GOP/s": twin / 1e9}
    if "ours f32" in rates:
        ladder["compute f32 GFLOP/s"] = median(rates.pop("ours f32"))
    best = [max(values) for values in zip(*rates.values(), strict=True)]
    detail = {f"{who} f32 GFLOP/s": median(values) for who, values in rates.items()}
    detail |= ladder
    if ladder:
        detail["share of integer peak"] = median(ours) * 1e9 / floors.integer_peak
    else:
        detail["share of f32 peak"] = median(ours) * 1e9 / floors.peak
    measure = Measure("rate", "GFLOP/s", "higher", _goal(format, count))
    pairs = [Pair(mine, other) for mine, other in zip(ours, best, strict=True)]
    yield Row(scenario, measure, pairs, "best f32 BLAS", detail=detail)
    if count == 1:
        reading = Measure(
            "weights read", "GB/s", "higher", Goal("ratio", "at least", 0.7) if format == "f32" else None
        )
        floor = floors.bandwidth / 1e9
        yield Row(
            scenario, reading, [Pair(nbytes / t / 1e9, floor) for t in taken["ours"]], "measured bandwidth"
        )


def _goal(format: TensorFormat, count: int) -> Goal | None:
    if format != "f32":
        return None
    return Goal("ratio", "at least", 0.9 if count >= MANY_ROWS else 1.0)
