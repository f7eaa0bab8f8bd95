"""Sequences with KV in scattered pages, shared where asked: one step of rope, store and attention for any ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sapwood.model.kv import KvPool
from sapwood.model.ops import HeadLayout, HeadNorms, RopeTables, StepSpans

Floats = NDArray[np.float32]


def floats(rng: np.random.Generator, *shape: int) -> Floats:
    return rng.standard_normal(shape).astype(np.float32)


def same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return a.tobytes() == b.tobytes()


def spans(rows: Sequence[int], starts: Sequence[int], tables: Sequence[NDArray[np.int32]]) -> StepSpans:
    return StepSpans(np.array(rows, np.int32), np.array(starts, np.int32), np.concatenate(tables))


@dataclass(frozen=True, slots=True)
class Seq:
    """`rows` tokens from `start` on. `like` and `shared`: its first pages are those of an earlier sequence."""

    start: int
    rows: int
    like: int | None = None
    shared: int = 0


class Scene:
    """One layer's pages, full of random KV; `run` computes one step through rope, store and attention."""

    def __init__(
        self, seed: int, layout: HeadLayout, page_size: int, dtype: Any, seqs: Sequence[Seq]
    ) -> None:
        rng = np.random.default_rng(seed)
        self.layout, self.seqs = layout, seqs
        counts = [-(-(s.start + s.rows) // page_size) for s in seqs]
        pages = rng.permutation(sum(counts) + 3).astype(np.int32)
        self.tables = np.split(pages[: sum(counts)].copy(), np.cumsum(counts)[:-1])
        for seq, table in zip(seqs, self.tables, strict=True):
            if seq.like is not None:
                # What a sequence writes in this step is its own.
                other = seqs[seq.like]
                common = min(seq.shared, seq.start, other.start) // page_size
                table[:common] = self.tables[seq.like][:common]
        self.kv = _pool(rng, (1, len(pages), page_size, layout.kv_heads, layout.head_dim), dtype)
        self.qkv = floats(rng, sum(s.rows for s in seqs), layout.qkv_width)
        angles = rng.standard_normal((max(s.start + s.rows for s in seqs), layout.head_dim // 2))
        self.rope = RopeTables(np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32))
        self.norms = HeadNorms(floats(rng, layout.head_dim), floats(rng, layout.head_dim), 1e-6)

    def run(
        self, ops: Any, *, window: int | None = None, norms: bool = False, scale: float | None = None
    ) -> tuple[Floats, KvPool]:
        kv = KvPool(self.kv.k.copy(), self.kv.v.copy(), self.kv.dtype)
        qkv = self.qkv.copy()
        plan = ops.plan(spans([s.rows for s in self.seqs], [s.start for s in self.seqs], self.tables), kv)
        ops.rope_and_store(plan, qkv, self.layout, self.rope, 0, self.norms if norms else None)
        out = np.empty((len(qkv), self.layout.heads * self.layout.head_dim), np.float32)
        ops.attention(plan, qkv, self.layout, 0, out, window=window, scale=scale)
        return out, kv


def _pool(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> KvPool:
    if dtype == "q8":
        return KvPool(_eighths(rng, shape), _eighths(rng, shape), dtype)
    k, v = floats(rng, *shape), floats(rng, *shape)
    if dtype == "bf16":
        return KvPool(_upper(k), _upper(v), dtype)
    storage = {"f16": np.float16, "f32": np.float32}[dtype]
    return KvPool(k.astype(storage), v.astype(storage), dtype)


def _upper(x: Floats) -> NDArray[np.uint16]:
    return (x.view(np.uint32) >> 16).astype(np.uint16)


def _eighths(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    quants = rng.integers(-127, 128, shape).astype(np.int8).view(np.uint8)
    scales = (0.001 + 0.02 * rng.random((*shape[:-1], 1))).astype(np.float32).view(np.uint8)
    return np.concatenate([quants, scales], axis=-1)
