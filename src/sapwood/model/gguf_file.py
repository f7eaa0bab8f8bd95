"""Reads a GGUF file: facts, and tensors as memory-mapped bytes. Extents are checked against the file first.

Our own reader: the `gguf` package takes seconds over a vocabulary's strings and trusts the lengths it reads.
Format: github.com/ggml-org/ggml, docs/gguf.md, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from sapwood.errors import ModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAGIC = b"GGUF"
_SCALARS = MappingProxyType(
    {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<B", 10: "<Q", 11: "<q", 12: "<d"}
)
_BOOL, _STRING, _ARRAY = 7, 8, 9
_MOST_DIMS = 4


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """A storage type: `size` bytes hold `values` numbers. `name` is ggml's."""

    name: str
    values: int
    size: int


_COMMON_LAYOUTS = MappingProxyType(
    {
        0: BlockLayout("F32", 1, 4),
        1: BlockLayout("F16", 1, 2),
        2: BlockLayout("Q4_0", 32, 18),
        3: BlockLayout("Q4_1", 32, 20),
        8: BlockLayout("Q8_0", 32, 34),
        30: BlockLayout("BF16", 1, 2),
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class GgufTensor:
    """A tensor as stored. `data` is uint8 [rows, bytes per row], memory-mapped; more dims fold into rows."""

    name: str
    layout: BlockLayout
    rows: int
    cols: int
    data: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class GgufFile:
    """Facts (scalars, texts, flat lists) and tensors of one file, by name."""

    path: Path
    facts: Mapping[str, object]
    tensors: Mapping[str, GgufTensor]


def read_gguf(path: Path) -> GgufFile:
    """Maps and parses a GGUF file. Raises ModelError naming the key or tensor that is cut or unsupported."""
    try:
        with path.open("rb") as file:
            if path.stat().st_size < 24:
                raise ModelError(f"{path} is cut: a GGUF header has at least 24 bytes", hint=_FETCH_AGAIN)
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error
    return _Parser(path, mapped).parse()


_FETCH_AGAIN = "the file may be a partial download; fetch it again"


class _Parser:
    def __init__(self, path: Path, mapped: mmap.mmap) -> None:
        self._path = path
        self._bytes = mapped
        self._at = 0
        self._reading = "the header"

    def parse(self) -> GgufFile:
        tensor_count, fact_count = self._header()
        facts: dict[str, object] = {}
        for _ in range(fact_count):
            self._reading = f"the key after {next(reversed(facts), 'the header')!r}"
            key = self._string()
            self._reading = f"key {key!r}"
            if key in facts:
                raise self._bad("appears twice")
            facts[key] = self._value(self._scalar("<I"))
        entries = [self._tensor_entry() for _ in range(tensor_count)]
        tensors = self._tensors(entries, self._alignment(facts))
        return GgufFile(self._path, MappingProxyType(facts), MappingProxyType(tensors))

    def _header(self) -> tuple[int, int]:
        if self._take(4) != _MAGIC:
            raise ModelError(f"{self._path} is not a GGUF file: it does not begin with 'GGUF'")
        version = self._scalar("<I")
        if version not in (2, 3):
            known = "big-endian" if version in (2 << 24, 3 << 24) else f"version {version}"
            raise ModelError(
                f"{self._path} is a {known} GGUF file; little-endian versions 2 and 3 are read",
                hint="convert it again with a current converter",
            )
        tensors, facts = self._scalar("<Q"), self._scalar("<Q")
        self._check_room(int(tensors) * 24 + int(facts) * 13)
        return int(tensors), int(facts)

    def _alignment(self, facts: Mapping[str, object]) -> int:
        alignment = facts.get("general.alignment", 32)
        sound = isinstance(alignment, int) and 8 <= alignment <= 2**20 and alignment & (alignment - 1) == 0
        if not isinstance(alignment, int) or not sound:
            self._reading = "key 'general.alignment'"
            raise self._bad(f"is {alignment!r}, not a power of two of at least 8")
        return alignment

    def _tensor_entry(self) -> _Entry:
        self._reading = "a tensor's name"
        name = self._string()
        self._reading = f"tensor {name!r}"
        dims = int(self._scalar("<I"))
        if not 1 <= dims <= _MOST_DIMS:
            raise self._bad(f"has {dims} dimensions")
        shape = tuple(int(self._scalar("<Q")) for _ in range(dims))
        layout = _layout(int(self._scalar("<I")))
        if layout is None:
            raise self._bad("is stored in a type that is not known here")
        return _Entry(name, shape, layout, int(self._scalar("<Q")))

    def _tensors(self, entries: list[_Entry], alignment: int) -> dict[str, GgufTensor]:
        start = -(-self._at // alignment) * alignment
        found: dict[str, GgufTensor] = {}
        for entry in entries:
            self._reading = f"tensor {entry.name!r}"
            if entry.name in found:
                raise self._bad("appears twice")
            if entry.offset % alignment:
                raise self._bad(f"starts at {entry.offset}, not a multiple of {alignment}")
            found[entry.name] = self._tensor(entry, start + entry.offset)
        return found

    def _tensor(self, entry: _Entry, offset: int) -> GgufTensor:
        cols, layout = entry.shape[0], entry.layout
        rows = 1
        for extent in entry.shape[1:]:
            rows *= extent
        if cols < 1 or rows < 1:
            raise self._bad(f"has the empty shape {entry.shape}")
        if cols % layout.values:
            raise self._bad(f"has rows of {cols} values, not a multiple of {layout.name}'s {layout.values}")
        row = cols // layout.values * layout.size
        if offset + rows * row > len(self._bytes):
            raise self._bad(f"needs {rows * row} bytes from {offset}, the file has {len(self._bytes)}")
        data = np.frombuffer(self._bytes, np.uint8, rows * row, offset).reshape(rows, row)
        return GgufTensor(entry.name, layout, rows, cols, data)

    def _value(self, kind: int | float) -> object:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array()
        if kind not in _SCALARS:
            raise self._bad(f"has the unknown value type {kind}")
        value = self._scalar(_SCALARS[int(kind)])
        return bool(value) if kind == _BOOL else value

    def _array(self) -> list[object]:
        kind, count = self._scalar("<I"), int(self._scalar("<Q"))
        if kind == _STRING:
            self._check_room(count * 8)
            return [self._string() for _ in range(count)]
        if kind not in _SCALARS:
            raise self._bad(f"is a list of the unsupported value type {kind}")
        dtype = np.dtype(_SCALARS[int(kind)])
        values = np.frombuffer(self._take(count * dtype.itemsize), dtype)
        return list((values.astype(bool) if kind == _BOOL else values).tolist())

    def _string(self) -> str:
        length = int(self._scalar("<Q"))
        try:
            return self._take(length).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._bad("is not UTF-8") from error

    def _scalar(self, format: str) -> int | float:
        self._check_room(struct.calcsize(format))
        (value,) = struct.unpack_from(format, self._bytes, self._at)
        self._at += struct.calcsize(format)
        return value  # type: ignore[no-any-return]

    def _take(self, length: int) -> bytes:
        self._check_room(length)
        self._at += length
        return self._bytes[self._at - length : self._at]

    def _check_room(self, length: int) -> None:
        if length > len(self._bytes) - self._at:
            raise ModelError(
                f"{self._path} is cut or corrupt at {self._reading}: {length} bytes wanted at {self._at}, "
                f"the file has {len(self._bytes)}",
                hint=_FETCH_AGAIN,
            )

    def _bad(self, what: str) -> ModelError:
        return ModelError(f"{self._path}: {self._reading} {what}", hint=_FETCH_AGAIN)


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    shape: tuple[int, ...]
    layout: BlockLayout
    offset: int


def _layout(type_id: int) -> BlockLayout | None:
    """How ggml lays out a type; the rare ones are asked of the `gguf` package, whose import takes a while."""
    if type_id in _COMMON_LAYOUTS:
        return _COMMON_LAYOUTS[type_id]
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        kind = GGMLQuantizationType(type_id)
    except ValueError:
        return None
    values, size = GGML_QUANT_SIZES[kind]
    return BlockLayout(kind.name, int(values), int(size))
