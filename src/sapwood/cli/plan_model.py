"""`--weights` and `--kv-dtype` of `sapwood plan`: how a model is stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sapwood.cli.flags import nearest
from sapwood.errors import UsageError
from sapwood.units import parse_size

if TYPE_CHECKING:
    from sapwood.sim import ModelShape

WEIGHTS = ("f32", "f16", "bf16", "fp8", "int8", "int4", "mxfp4", "nvfp4", "q8", "q4")
"""`WeightsName` of the simulator, known before it is loaded."""
KV_DTYPES = ("f32", "f16", "bf16", "fp8", "int8", "q8")
"""`KvName`, likewise."""


@dataclass(frozen=True, slots=True)
class Weights:
    """One of both: a format, or bytes of all."""

    format: str | None = None
    bytes: int | None = None


def weights_of(flag: str) -> Callable[[Any], Weights]:
    """Reads a format, or bytes of all weights (`35GB`). What it gives back raises UsageError."""

    def read(value: Any) -> Weights:
        if value in WEIGHTS:
            return Weights(str(value))
        try:
            return Weights(bytes=parse_size(str(value)))
        except UsageError:
            meant = nearest(str(value), WEIGHTS)
            raise UsageError(
                f"{flag} is {value!r}; it must be one of {', '.join(WEIGHTS)}, or what all weights take, such as 35GB",
                hint=f"did you mean {meant}?" if meant else None,
            ) from None

    return read


def model_of(name: str, weights: Weights | None, kv: str | None) -> ModelShape:
    """Raises UsageError."""
    from sapwood.sim import shape_named

    stored = None if weights is None else weights.format or weights.bytes
    return shape_named(name, stored, kv or "bf16")  # type: ignore[arg-type]
