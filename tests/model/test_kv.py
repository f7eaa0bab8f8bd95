"""Pages: how many fit, how they are laid out, and what is said where none does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from sapwood.errors import UsageError
from sapwood.model import kv
from sapwood.model.spec import ModelSpec, RopeSpec

if TYPE_CHECKING:
    from sapwood.config import KvDtype

SPEC = ModelSpec(
    family="llama",
    vocab_size=100,
    hidden_size=48,
    layers=3,
    heads=6,
    kv_heads=2,
    head_dim=8,
    ffn_size=64,
    max_context=256,
    norm_eps=1e-5,
    rope=RopeSpec(10_000.0, 8),
    tied=True,
    sliding_layers=(False,) * 3,
)
VALUES = 2 * 3 * 2 * 8
"""K and V over layers, heads and head_dim, of one token."""


@pytest.mark.parametrize(("dtype", "size"), [("f16", 2), ("bf16", 2), ("f32", 4)])
def test_bytes_per_token(dtype: KvDtype, size: int) -> None:
    assert kv.bytes_per_token(SPEC, dtype) == VALUES * size


def test_a_row_of_int8_has_its_scale_beside_it() -> None:
    assert kv.bytes_per_token(SPEC, "q8") == VALUES + 2 * 3 * 2 * 4
    pool = kv.allocate(SPEC, 10 * kv.bytes_per_token(SPEC, "q8"), 2, "q8")
    assert pool.k.shape == pool.v.shape == (3, 5, 2, 2, 8 + 4)
    assert pool.k.dtype == np.uint8


@pytest.mark.parametrize("dtype", ["f16", "f32", "q8"])
def test_the_first_row_begins_a_cache_line(dtype: KvDtype) -> None:
    for shape in ((1, 3, 1, 1, 8), (2, 1000, 1, 2, 8)):
        assert kv.empty_pages(shape, dtype).ctypes.data % 64 == 0


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize(("dtype", "stored"), [("f16", np.float16), ("bf16", np.uint16), ("f32", np.float32)])
def test_as_many_pages_as_fit(dtype: KvDtype, stored: Any, page_size: int) -> None:
    page = kv.bytes_per_token(SPEC, dtype) * page_size
    for memory, pages in ((page, 1), (10 * page - 1, 9), (10 * page, 10)):
        pool = kv.allocate(SPEC, memory, page_size, dtype)
        assert (pool.pages, pool.page_size, pool.dtype) == (pages, page_size, dtype)
        assert pool.k.shape == pool.v.shape == (3, pages, page_size, 2, 8)
        assert pool.k.dtype == pool.v.dtype == stored
        assert pool.nbytes == pages * page <= memory
        assert not np.shares_memory(pool.k, pool.v)


@pytest.mark.parametrize("memory", [0, 1, VALUES * 2 * 16 - 1])
def test_memory_that_holds_no_page_is_refused_with_the_number_needed(memory: int) -> None:
    with pytest.raises(UsageError) as raised:
        kv.allocate(SPEC, memory, 16, "f16")
    assert raised.value.message == (
        f"KV memory of {memory} bytes holds no page: one page of 16 tokens takes 3 KiB"
        if memory < 1024
        else "KV memory of 3 KiB holds no page: one page of 16 tokens takes 3 KiB"
    )
    assert raised.value.hint == "give --kv-memory at least 3KiB"


def test_memory_that_the_machine_cannot_give_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(kv.np, "empty", refuse)  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="cannot give 1000 bytes") as raised:
        kv.allocate(SPEC, 1000, 1, "f16")
    assert raised.value.hint == "lower --kv-memory"
