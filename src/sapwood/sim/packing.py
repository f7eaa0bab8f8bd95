"""How many bytes a matrix of weights takes, by the format of its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

WeightsName = Literal["f32", "f16", "bf16", "fp8", "int8", "int4", "mxfp4", "nvfp4", "q8", "q4"]


@dataclass(frozen=True, slots=True)
class Packing:
    """Numbers of so many bits, and for each block of them what scales it.

    Attributes:
        name: for people.
        bits: of a number.
        scale_bits: of a block's scale, and of its zero point where it has one.
        columns, rows: of a block; None is as many as the matrix has.
    """

    name: str
    bits: float
    scale_bits: float = 0.0
    columns: int | None = None
    rows: int | None = 1

    def bytes_of(self, rows: int, columns: int) -> float:
        """Of one matrix; blocks at its edges are whole ones."""
        across = 1 if self.columns is None else -(-columns // self.columns)
        down = 1 if self.rows is None else -(-rows // self.rows)
        return (rows * columns * self.bits + across * down * self.scale_bits) / 8


PACKINGS: Mapping[WeightsName, Packing] = MappingProxyType(
    {
        "f32": Packing("f32", 32),
        "f16": Packing("f16", 16),
        "bf16": Packing("bf16", 16),
        "fp8": Packing("fp8", 8, 32),
        "int8": Packing("int8", 8, 16),
        "int4": Packing("int4", 4, 16 + 4, 128),
        "mxfp4": Packing("mxfp4", 4, 8, 32),
        "nvfp4": Packing("nvfp4", 4, 8, 16),
        "q8": Packing("q8", 8, 16, 32),
        "q4": Packing("q4", 4, 16 + 16, 32),
    }
)
"""As they are mostly stored: fp8 and int8 with a scale for each row, int4 as AWQ and GPTQ have it, mxfp4 as in OCP's
"Microscaling Formats (MX) Specification" (2023), q8 and q4 as `sapwood serve --weights` does."""

EVERY_MATRIX: frozenset[str] = frozenset({"f32", "f16", "bf16", "q8", "q4"})
"""Formats that the embedding and the output layer are stored in too; the others keep these at two bytes."""
