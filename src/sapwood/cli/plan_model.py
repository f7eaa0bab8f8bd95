"""`--weights` and `--kv-dtype` of `sapwood plan`: how a model is stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapwood.cli.flags import nearest, one_of
from sapwood.cli.plan_ask import bytes_of
from sapwood.errors import UsageError

if TYPE_CHECKING:
    from sapwood.sim import ModelShape

WEIGHTS = ("f32", "f16", "bf16", "fp8", "int8", "int4", "mxfp4", "nvfp4", "q8", "q4")
"""`WeightsName` of the simulator, known before it is loaded."""
_OF_WEIGHTS = f"one of {', '.join(WEIGHTS)}, or what all weights take, such as 35GB"
_LEAST = 1000
"""Bytes: whoever writes 70B means parameters."""
KV_DTYPES = ("f32", "f16", "bf16", "fp8", "int8", "q8")
"""`KvName`, likewise."""


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """One of both: a format, or bytes of all."""

    format: str | None = None
    bytes: int | None = None


def weights_of(flag: str) -> Callable[[Any], StoredWeights]:
    """Reads a format, or bytes of all weights (`35GB`). What it gives back raises UsageError."""

    def read(value: Any) -> StoredWeights:
        text = str(value)
        if text in WEIGHTS:
            return StoredWeights(text)
        if text.strip().replace(".", "", 1).isdecimal():
            hint = f"if you mean bits of each, write int8 or int4; if the size of all, {text.strip()}GB"
            raise UsageError(f"{flag} is {text!r}: of what? It must be {_OF_WEIGHTS}", hint=hint)
        return StoredWeights(bytes=_size(flag, text))

    return read


def _size(flag: str, text: str) -> int:
    try:
        size = bytes_of(flag, text, _OF_WEIGHTS)
    except UsageError as error:
        meant = nearest(text, WEIGHTS)
        raise UsageError(
            error.message, hint=error.hint or (f"did you mean {meant}?" if meant else None)
        ) from None
    if size < _LEAST:
        hint = "the size of all is in bytes, 35GB say; parameters are counted from --model-shape"
        raise UsageError(f"{flag} is {text!r}; all weights take more than {size} bytes", hint=hint)
    return size


def model_of(name: str, weights: StoredWeights | None, kv: str | None) -> ModelShape:
    """Raises UsageError."""
    from sapwood.sim import shape_named

    stored = None if weights is None else weights.format or weights.bytes
    return shape_named(name, stored, kv or "bf16")  # type: ignore[arg-type]


StoredAs = Annotated[
    StoredWeights | None,
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
