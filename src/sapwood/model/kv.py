"""The pages: where keys and values lie. One array each for K and V; the cache decides what a page holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from sapwood.errors import UsageError
from sapwood.units import format_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sapwood.config import KvDtype
    from sapwood.model.spec import ModelSpec

_STORAGE: Mapping[str, type[np.generic]] = MappingProxyType(
    {"f16": np.float16, "bf16": np.uint16, "f32": np.float32, "q8": np.uint8}
)
_SCALE_BYTES = 4
_ALIGNMENT = 64
"""A row that straddles two cache lines more than it must is read that much slower."""

LEAST_TOKENS = 64
"""A pool for fewer serves nobody: a chat's format alone takes dozens."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class KvPool:
    """`k` and `v` are [layers, pages, page_size, kv_heads, head_dim].

    bfloat16 is kept as its upper 16 bits. With q8 the last axis has head_dim int8 values (seen as uint8) and then the
    four bytes of their float32 scale.
    """

    k: NDArray[Any]
    v: NDArray[Any]
    dtype: KvDtype

    @property
    def pages(self) -> int:
        return int(self.k.shape[1])

    @property
    def page_size(self) -> int:
        return int(self.k.shape[2])

    @property
    def nbytes(self) -> int:
        return self.k.nbytes + self.v.nbytes


def bytes_per_token(spec: ModelSpec, dtype: KvDtype) -> int:
    """Bytes of K and V over all layers."""
    return (
        2 * spec.layers * spec.kv_heads * row_width(spec.head_dim, dtype) * np.dtype(_STORAGE[dtype]).itemsize
    )


def row_width(head_dim: int, dtype: KvDtype) -> int:
    """Elements of one head's row in a page."""
    return head_dim + _SCALE_BYTES if dtype == "q8" else head_dim


def check_memory(spec: ModelSpec, memory: int, page_size: int, dtype: KvDtype) -> None:
    """Raises UsageError where `memory` bytes hold fewer than LEAST_TOKENS tokens."""
    page_bytes = bytes_per_token(spec, dtype) * page_size
    tokens = memory // page_bytes * page_size
    if tokens < LEAST_TOKENS:
        needed = -(-LEAST_TOKENS // page_size) * page_bytes
        raise UsageError(
            f"KV memory of {format_size(memory)} holds {_tokens(tokens)}; at least {LEAST_TOKENS} must fit, "
            f"and one page of {_tokens(page_size)} takes {format_size(page_bytes)}",
            hint=f"give --kv-memory at least {-(-needed // 1024)}KiB",
        )


def allocate(spec: ModelSpec, memory: int, page_size: int, dtype: KvDtype) -> KvPool:
    """As many pages as fit in `memory` bytes; the system hands the memory over as pages are first written."""
    page_bytes = bytes_per_token(spec, dtype) * page_size
    pages = memory // page_bytes
    if pages < 1:
        raise UsageError(
            f"KV memory of {format_size(memory)} holds no page: "
            f"one page of {_tokens(page_size)} takes {format_size(page_bytes)}",
            hint=f"give --kv-memory at least {-(-page_bytes // 1024)}KiB",
        )
    shape = (spec.layers, pages, page_size, spec.kv_heads, row_width(spec.head_dim, dtype))
    try:
        return KvPool(empty_pages(shape, dtype), empty_pages(shape, dtype), dtype)
    except MemoryError as error:
        raise UsageError(
            f"this machine cannot give {format_size(memory)} for KV pages", hint="lower --kv-memory"
        ) from error


def empty_pages(shape: tuple[int, ...], dtype: KvDtype) -> NDArray[Any]:
    """An array of the type's storage whose first row begins a cache line. Raises MemoryError."""
    kind = np.dtype(_STORAGE[dtype])
    nbytes = math.prod(shape) * kind.itemsize
    raw = np.empty(nbytes + _ALIGNMENT, np.uint8)
    first = -raw.ctypes.data % _ALIGNMENT
    return raw[first : first + nbytes].view(kind).reshape(shape)


def _tokens(count: int) -> str:
    return "1 token" if count == 1 else f"{count} tokens"
