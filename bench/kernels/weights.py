"""Random weights in the formats that model files have, enough copies that no cache holds them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sapwood.model.tensor import BLOCK_BYTES, BLOCK_VALUES, RawTensor, TensorFormat

if TYPE_CHECKING:
    from sapwood.model.ops import Ops


@dataclass(frozen=True, slots=True)
class Shape:
    outputs: int
    inputs: int

    def __str__(self) -> str:
        return f"{self.outputs}×{self.inputs}"


def float_copies(shape: Shape, enough: int) -> list[NDArray[np.float32]]:
    """float32 [outputs, inputs], again and again until `enough` bytes are there."""
    rng = np.random.default_rng(0)
    first = rng.standard_normal((shape.outputs, shape.inputs), np.float32)
    return [first, *(first.copy() for _ in range(_copies(first.nbytes, enough) - 1))]


def packed_copies(ops: Ops, format: TensorFormat, shape: Shape, enough: int) -> Sequence[Any]:
    tensor = RawTensor("weight", format, shape.outputs, shape.inputs, _encoded(format, shape))
    return [ops.pack([tensor]) for _ in range(_copies(tensor.data.nbytes, enough))]


def _copies(nbytes: int, enough: int) -> int:
    return max(1, -(-enough // nbytes))


def _encoded(format: TensorFormat, shape: Shape) -> NDArray[Any]:
    rng = np.random.default_rng(0)
    if format not in BLOCK_BYTES:
        floats = rng.standard_normal((shape.outputs, shape.inputs), np.float32)
        return floats.astype(np.float16) if format == "f16" else floats
    per_block = BLOCK_BYTES[format]
    blocks = shape.inputs // BLOCK_VALUES
    data = rng.integers(0, 256, (shape.outputs, blocks, per_block), dtype=np.uint8)
    # Any quants will do, but random bytes as a float16 may be huge, infinite or no number.
    scales = per_block % 16 // 2
    values = (0.001 + 0.01 * rng.random((shape.outputs, blocks, scales))).astype(np.float16)
    data[:, :, : 2 * scales] = values.view(np.uint8)
    return data.reshape(shape.outputs, blocks * per_block)
