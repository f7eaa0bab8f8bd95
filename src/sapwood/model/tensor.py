"""A weight tensor as its file holds it: format, extents, bytes."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

TensorFormat = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1"]

BLOCK_VALUES = 32
"""Values in one block of the quantised formats."""

BLOCK_BYTES: Mapping[str, int] = MappingProxyType({"q8_0": 34, "q4_0": 18, "q4_1": 20})
"""Bytes of one block: f16 scale, (q4_1: f16 minimum,) then the quants, as GGUF lays them out."""


@dataclass(frozen=True, slots=True, eq=False)
class RawTensor:
    """A matrix of `rows` outputs × `cols` inputs (a vector has one row), in the file's own encoding.

    Attributes:
        name: the canonical name, such as `layers.3.q`.
        format: how `data` is encoded.
        data: f32 and f16 as [rows, cols] of their type, bf16 as uint16 [rows, cols], block formats as
            uint8 [rows, cols / 32 × bytes per block]. Read-only, memory-mapped where the file allows.
    """

    name: str
    format: TensorFormat
    rows: int
    cols: int
    data: NDArray[Any]
