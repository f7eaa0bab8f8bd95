"""Reads safetensors files as memory-mapped arrays. Every extent is checked against the file's size first.

Our own: the library's numpy side knows no bfloat16 and copies. Format: an 8-byte length, a JSON header
of {name: {dtype, shape, data_offsets}}, then the bytes.
"""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from sapwood.errors import ModelError
from sapwood.model.tensor import RawTensor, TensorFormat

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_FORMATS: Mapping[str, TensorFormat] = MappingProxyType({"F32": "f32", "F16": "f16", "BF16": "bf16"})
_DTYPES = MappingProxyType({"f32": "<f4", "f16": "<f2", "bf16": "<u2"})
_LONGEST_HEADER = 100_000_000
_FETCH_AGAIN = "the file may be a partial download; fetch it again"


@dataclass(frozen=True, slots=True, eq=False)
class SafetensorsFile:
    """One mapped file; `entries` are checked only when a tensor is asked for by name."""

    path: Path
    entries: Mapping[str, object]
    body: NDArray[np.uint8]

    def tensor(self, stored: str, name: str) -> RawTensor:
        """The tensor `stored`, called `name` here. Raises ModelError naming it if cut or unsupported."""
        entry = self.entries.get(stored)
        if not isinstance(entry, dict):
            raise self._bad(stored, "is not described by an object")
        format = _FORMATS.get(str(entry.get("dtype")))
        if format is None:
            raise ModelError(
                f"{self.path}: tensor {stored!r} is {entry.get('dtype')!r}; F32, F16 and BF16 are read",
                hint="choose an unquantised checkpoint, or a GGUF file",
            )
        rows, cols = self._extent(stored, entry.get("shape"))
        start, end = self._span(stored, entry.get("data_offsets"))
        dtype = np.dtype(_DTYPES[format])
        if end - start != rows * cols * dtype.itemsize:
            raise self._bad(stored, f"has {end - start} bytes for {rows} × {cols} values of {format}")
        return RawTensor(name, format, rows, cols, _values(self.body[start:end], dtype).reshape(rows, cols))

    def _extent(self, stored: str, shape: object) -> tuple[int, int]:
        sound = isinstance(shape, list) and len(shape) in (1, 2) and all(_natural(n) and n > 0 for n in shape)
        if not sound or not isinstance(shape, list):
            raise self._bad(stored, f"has the shape {shape!r}; one or two positive extents were expected")
        return (1, shape[0]) if len(shape) == 1 else (shape[0], shape[1])

    def _span(self, stored: str, offsets: object) -> tuple[int, int]:
        if not isinstance(offsets, list) or len(offsets) != 2 or not all(_natural(n) for n in offsets):
            raise self._bad(stored, f"has the data offsets {offsets!r}")
        start, end = offsets
        if not start <= end <= len(self.body):
            raise self._bad(stored, f"lies at bytes {start} to {end} of {len(self.body)}")
        return start, end

    def _bad(self, stored: str, what: str) -> ModelError:
        return ModelError(f"{self.path}: tensor {stored!r} {what}", hint=_FETCH_AGAIN)


def read_safetensors(path: Path) -> SafetensorsFile:
    """Maps a file and parses its header. Raises ModelError if it is cut or is not safetensors."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            if size < 8:
                raise ModelError(f"{path} is cut: a safetensors file has at least 8 bytes", hint=_FETCH_AGAIN)
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error
    length = int.from_bytes(mapped[:8], "little")
    if length > min(size - 8, _LONGEST_HEADER):
        raise ModelError(
            f"{path} is cut or corrupt: its header claims {length} bytes of {size}", hint=_FETCH_AGAIN
        )
    entries = _header(path, mapped[8 : 8 + length])
    return SafetensorsFile(path, entries, np.frombuffer(mapped, np.uint8)[8 + length :])


def _header(path: Path, raw: bytes) -> Mapping[str, object]:
    try:
        entries = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: the header is not JSON: {error}", hint=_FETCH_AGAIN) from error
    if not isinstance(entries, dict):
        raise ModelError(f"{path}: the header is not an object of tensors", hint=_FETCH_AGAIN)
    entries.pop("__metadata__", None)
    return MappingProxyType(entries)


def _values(raw: NDArray[np.uint8], dtype: np.dtype[Any]) -> NDArray[Any]:
    """A view where the bytes are aligned, else a copy: kernels want aligned values."""
    values: NDArray[Any] = raw.view(dtype)
    return values if values.flags.aligned else values.copy()


def _natural(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= math.ldexp(1, 62)
