"""`--weights` and `--kv-dtype` of `sapwood plan`: how a model is stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapwood.cli.flags import nearest, one_of
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


StoredAs = Annotated[
    Weights | None,
    typer.Option(
        "--weights",
        metavar=f"{'|'.join(WEIGHTS)}|SIZE",
        help="How they are stored, or what all take: 35GB; default: as the config says.",
        parser=weights_of("--weights"),
    ),
]
KvDtype = Annotated[
    str | None,
    typer.Option(
        "--kv-dtype",
        metavar="|".join(KV_DTYPES),
        help="Of keys and values; default: bf16.",
        parser=one_of("--kv-dtype", KV_DTYPES),
    ),
]
