"""Between storage formats: GGUF blocks to our formats, any of ours to float32, and back down to blocks.

Block formats hold 32 values a block: q8_0 is f16 d and 32 int8; q4_0 is f16 d and 16 bytes, low halves
for values 0..15, high halves for 16..31; q4_1 has an f16 minimum m after d.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from sapwood.errors import ModelError
from sapwood.model.gguf_repack import REPACKINGS, Repacking, halves
from sapwood.model.tensor import BLOCK_BYTES, BLOCK_VALUES, RawTensor, TensorFormat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from sapwood.model.gguf_file import GgufTensor


@dataclass(frozen=True, slots=True)
class Blocks:
    """scale · quants + minimum, a row for each block: int8 [blocks, 32], the others float32 [blocks, 1]."""

    quants: NDArray[np.int8]
    scale: NDArray[np.float32]
    minimum: NDArray[np.float32] | None


_KEPT: Mapping[str, TensorFormat] = MappingProxyType(
    {"F32": "f32", "F16": "f16", "BF16": "bf16", "Q8_0": "q8_0", "Q4_0": "q4_0", "Q4_1": "q4_1"}
)
_MOST_BITS_AS_Q4 = 4.75
"""Stored types of up to this many bits a weight become q4_1, larger ones q8_0 (Q4_K has 4.5, Q5_K 5.5)."""


def from_gguf(tensor: GgufTensor, name: str) -> RawTensor:
    """A stored tensor under its canonical name: as it is if its format is ours, else repacked or in the nearest.

    Raises ModelError naming the tensor where its type cannot be read.
    """
    kept = _KEPT.get(tensor.layout.name)
    if kept is not None:
        return RawTensor(name, kept, tensor.rows, tensor.cols, tensor.data.view(_stored_dtype(kept)))
    repacking = REPACKINGS.get(tensor.layout.name)
    if repacking is not None:
        return RawTensor(name, repacking.format, tensor.rows, tensor.cols, _repacked(tensor, repacking))
    values = _dequantise(tensor)
    bits = tensor.layout.size * 8 / tensor.layout.values
    nearest: TensorFormat = "q4_1" if bits <= _MOST_BITS_AS_Q4 else "q8_0"
    wide = RawTensor(name, "f32", tensor.rows, tensor.cols, values)
    return requantize(wide, nearest if tensor.cols % BLOCK_VALUES == 0 else "f16")


def _repacked(tensor: GgufTensor, repacking: Repacking) -> NDArray[np.uint8]:
    try:
        return repacking.blocks(tensor.data.reshape(-1, tensor.layout.size)).reshape(tensor.rows, -1)
    except ValueError as error:
        raise ModelError(f"tensor {tensor.name!r} cannot become {repacking.format}: {error}") from error


def to_f32(tensor: RawTensor) -> NDArray[np.float32]:
    """The values as float32 [rows, cols]; exact, but q4_1's d·q + m is rounded once, as a fused multiply-add.

    d·q has 15 significant bits and is exact in float32, so the one addition is the one rounding.
    """
    with np.errstate(all="ignore"):
        if tensor.format == "f32":
            return np.ascontiguousarray(tensor.data, dtype=np.float32)
        if tensor.format == "f16":
            return tensor.data.astype(np.float32)
        if tensor.format == "bf16":
            return (tensor.data.astype(np.uint32) << 16).view(np.float32)
        return _from_blocks(tensor)


def requantize(tensor: RawTensor, format: TensorFormat) -> RawTensor:
    """The same tensor in another format, each value to its nearest; unchanged if it already has it.

    Raises ModelError if the rows do not divide into blocks or the values are not finite.
    """
    if tensor.format == format:
        return tensor
    if format in BLOCK_BYTES and tensor.cols % BLOCK_VALUES:
        raise ModelError(
            f"tensor {tensor.name!r} has rows of {tensor.cols} values; {format} needs whole {BLOCK_VALUES}s",
            hint="keep it as f16 or f32",
        )
    return RawTensor(tensor.name, format, tensor.rows, tensor.cols, _encode(tensor, format))


def _encode(tensor: RawTensor, format: TensorFormat) -> NDArray[Any]:
    values = to_f32(tensor)
    if format == "f32":
        return values
    if format == "bf16":
        return _to_bf16(values)
    if format == "f16":
        return _to_f16(tensor.name, values)
    if not np.isfinite(values).all():
        raise ModelError(
            f"tensor {tensor.name!r} holds a value that is not finite; it cannot become {format}"
        )
    from gguf import GGMLQuantizationType, quants

    return np.asarray(quants.quantize(values, GGMLQuantizationType[format.upper()]), dtype=np.uint8)


def _to_f16(name: str, values: NDArray[np.float32]) -> NDArray[np.float16]:
    with np.errstate(over="ignore", under="ignore"):
        half = values.astype(np.float16)
    if (np.isinf(half) & np.isfinite(values)).any():
        raise ModelError(f"tensor {name!r} holds values beyond float16's 65504", hint="keep it as f32")
    return half


def _to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round to nearest, ties to even; NaN stays NaN."""
    bits = values.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), np.uint64(0x7FC0), rounded).astype(np.uint16)


def blocks_of(tensor: RawTensor) -> Blocks:
    """The parts of a tensor in a block format."""
    blocks = tensor.data.reshape(-1, BLOCK_BYTES[tensor.format])
    if tensor.format == "q8_0":
        return Blocks(blocks[:, 2:].view(np.int8), halves(blocks[:, :2]), None)
    if tensor.format == "q4_0":
        return Blocks(_nibbles(blocks[:, 2:]) - np.int8(8), halves(blocks[:, :2]), None)
    return Blocks(_nibbles(blocks[:, 4:]), halves(blocks[:, :2]), halves(blocks[:, 2:4]))


def _from_blocks(tensor: RawTensor) -> NDArray[np.float32]:
    blocks = blocks_of(tensor)
    values = blocks.scale * blocks.quants.astype(np.float32)
    if blocks.minimum is not None:
        values = values + blocks.minimum
    return values.reshape(tensor.rows, tensor.cols)


def _nibbles(packed: NDArray[np.uint8]) -> NDArray[np.int8]:
    return np.concatenate([packed & 15, packed >> 4], axis=1).view(np.int8)


def _dequantise(tensor: GgufTensor) -> NDArray[np.float32]:
    from gguf import GGMLQuantizationType, quants

    try:
        with np.errstate(all="ignore"):
            values = quants.dequantize(tensor.data, GGMLQuantizationType[tensor.layout.name])
    except (NotImplementedError, KeyError, ValueError) as error:
        raise ModelError(
            f"tensor {tensor.name!r} is stored as {tensor.layout.name}, which cannot be read here",
            hint="choose a file in F32, F16, BF16, Q8_0, Q4_0, Q4_1 or a K-quant",
        ) from error
    return np.asarray(values, dtype=np.float32).reshape(tensor.rows, tensor.cols)


def _stored_dtype(format: TensorFormat) -> np.dtype[Any]:
    return np.dtype({"f32": "<f4", "f16": "<f2", "bf16": "<u2"}.get(format, "u1"))
