"""The slow twin: plain numpy, bit for bit what the native kernels give. Also what runs where those cannot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sapwood.model import draw_reference
from sapwood.model import exact_float as ef
from sapwood.model.gguf_convert import blocks_of, to_f32
from sapwood.model.ops import Walk
from sapwood.model.tensor import BLOCK_BYTES, BLOCK_VALUES, RawTensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sapwood.config import Compute
    from sapwood.model.kv import KvPool
    from sapwood.model.ops import (
        Activation,
        HeadLayout,
        HeadNorms,
        Norm,
        Picked,
        Ranked,
        RopeTables,
        StepSpans,
    )
    from sapwood.types import SamplingParams

_TILE = 64
_F32 = np.float32


@dataclass(frozen=True, slots=True)
class SpanPlan:
    """One sequence: its rows of the step, its positions, and the (page, offset) of every position up to its last."""

    rows: slice
    start: int
    page: NDArray[np.int64]
    offset: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ReferencePlan:
    spans: tuple[SpanPlan, ...]
    kv: KvPool


ReferenceWeight = tuple["NDArray[np.float32] | ef.QuantisedWeight", ...]
"""Matrices [N, K] whose outputs lie one after another."""


class ReferenceOps:
    name = "reference"
    exact = True

    def __init__(self, compute: Compute = "auto") -> None:
        self.compute = compute

    def pack(self, tensors: Sequence[RawTensor]) -> ReferenceWeight:
        return tuple(_part(tensor, self.compute) for tensor in tensors)

    def plan(self, spans: StepSpans, kv: KvPool) -> ReferencePlan:
        if len(spans.pages) and not 0 <= spans.pages.min() <= spans.pages.max() < kv.pages:
            raise ValueError("page id outside the pool")
        counts = -(-(spans.starts + spans.rows) // kv.page_size)
        if counts.sum() != len(spans.pages):
            raise ValueError("page tables do not cover the spans")
        plans, row, table = [], 0, 0
        for rows, start in zip(spans.rows.tolist(), spans.starts.tolist(), strict=True):
            positions = np.arange(start + rows)
            pages = spans.pages[table : table + -(-(start + rows) // kv.page_size)]
            plans.append(
                SpanPlan(
                    slice(row, row + rows),
                    start,
                    pages[positions // kv.page_size].astype(np.int64),
                    positions % kv.page_size,
                )
            )
            row += rows
            table += len(pages)
        return ReferencePlan(tuple(plans), kv)

    def embed(
        self, table: RawTensor, tokens: NDArray[np.int32], out: NDArray[np.float32], *, scale: float = 1.0
    ) -> None:
        if len(tokens) and not 0 <= tokens.min() <= tokens.max() < table.rows:
            raise ValueError(f"token id outside the vocabulary of {table.rows}")
        rows = to_f32(RawTensor(table.name, table.format, len(tokens), table.cols, table.data[tokens]))
        out[:] = rows if scale == 1 else rows * _F32(scale)

    def rms_norm(
        self, x: NDArray[np.float32], norm: Norm, out: NDArray[np.float32], *, accumulate: bool = False
    ) -> None:
        y = ef.rms_norm(x, norm.weight, norm.eps)
        out[:] = out + y if accumulate else y

    def linear(
        self,
        x: NDArray[np.float32],
        weight: Any,
        out: NDArray[np.float32],
        *,
        norm: Norm | None = None,
        bias: NDArray[np.float32] | None = None,
        accumulate: bool = False,
    ) -> None:
        y = _product(_normed(x, norm), weight)
        if bias is not None:
            y = y + bias
        out[:] = out + y if accumulate else y

    def gated_linear(
        self,
        x: NDArray[np.float32],
        gate: Any,
        up: Any,
        out: NDArray[np.float32],
        *,
        norm: Norm | None = None,
        activation: Activation = "silu",
    ) -> None:
        x = _normed(x, norm)
        out[:] = ef.ACTIVATIONS[activation](_product(x, gate)) * _product(x, up)

    def rope_and_store(
        self,
        plan: ReferencePlan,
        qkv: NDArray[np.float32],
        layout: HeadLayout,
        rope: RopeTables,
        layer: int,
        norms: HeadNorms | None = None,
    ) -> None:
        heads = qkv.reshape(len(qkv), -1, layout.head_dim)
        q, k, v = np.split(heads, [layout.heads, layout.heads + layout.kv_heads], axis=1)
        kv = plan.kv
        for span in plan.spans:
            positions = slice(span.start, len(span.page))
            if norms is not None:
                q[span.rows] = ef.rms_norm(q[span.rows], norms.q, norms.eps)
                k[span.rows] = ef.rms_norm(k[span.rows], norms.k, norms.eps)
            for part in (q, k):
                _rotate(part[span.rows], rope.cos[positions], rope.sin[positions])
            page, offset = span.page[positions], span.offset[positions]
            kv.k[layer, page, offset] = _rounded(k[span.rows], kv)
            kv.v[layer, page, offset] = _rounded(v[span.rows], kv)

    def attention(
        self,
        plan: ReferencePlan,
        qkv: NDArray[np.float32],
        layout: HeadLayout,
        layer: int,
        out: NDArray[np.float32],
        *,
        window: int | None = None,
        scale: float | None = None,
    ) -> None:
        group = layout.heads // layout.kv_heads
        factor = _F32(layout.head_dim**-0.5 if scale is None else scale)
        queries = qkv.reshape(len(qkv), -1, layout.head_dim)[:, : layout.heads] * factor
        result = out.reshape(len(out), layout.heads, layout.head_dim)
        kv = plan.kv
        for span in plan.spans:
            keys = _widened(kv.k[layer, span.page, span.offset])
            values = _widened(kv.v[layer, span.page, span.offset])
            for i, row in enumerate(range(span.rows.start, span.rows.stop)):
                seen = _Seen(span.start + i, window)
                for h in range(layout.heads):
                    result[row, h] = seen.attend(queries[row, h], keys[:, h // group], values[:, h // group])

    def program(self, walk: Callable[[ReferencePlan], None], plan: ReferencePlan) -> Walk:  # noqa: ARG002
        return Walk(walk)

    def uniform(self, seed: int, sample: int, position: int) -> float:
        return draw_reference.uniform(seed, sample, position)

    def pick(
        self, rows: Sequence[NDArray[np.float32]], params: Sequence[SamplingParams], numbers: Sequence[float]
    ) -> Picked:
        return draw_reference.pick(rows, params, numbers)

    def rank(self, rows: Sequence[NDArray[np.float32]], top: int) -> Ranked:
        return draw_reference.rank(rows, top)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The keys one query sees, in tiles aligned to absolute positions, merged in ascending order."""

    position: int
    window: int | None

    def attend(
        self, query: NDArray[np.float32], keys: NDArray[np.float32], values: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        first = max(0, self.position - self.window + 1) if self.window else 0
        top, total = _F32(-np.inf), np.zeros((), _F32)
        mixed = np.zeros(values.shape[1], _F32)
        for base in range(first // _TILE * _TILE, self.position + 1, _TILE):
            low, high = max(first, base), min(base + _TILE, self.position + 1)
            scores = np.full(_TILE, -np.inf, _F32)
            scores[low - base : high - base] = ef.chain(query[None], keys[low:high])[0]
            tile_top = scores.max()
            weights = ef.exp(scores - tile_top)
            lanes = np.zeros(ef.LANES, _F32)
            for j in range(0, _TILE, ef.LANES):
                lanes = lanes + weights[j : j + ef.LANES]
            tile_mixed = ef.chain(weights[None, low - base : high - base], values[low:high].T)[0]
            new_top = max(top, tile_top)
            old, new = ef.exp(np.array([top - new_top, tile_top - new_top], _F32))
            total = ef.fma(total, old, ef.sum_lanes(lanes) * new)
            mixed = ef.fma(mixed, old, tile_mixed * new)
            top = new_top
        return np.asarray(mixed / total)


def _part(tensor: RawTensor, compute: Compute) -> NDArray[np.float32] | ef.QuantisedWeight:
    if compute == "f32" or tensor.format not in BLOCK_BYTES:
        return to_f32(tensor)
    blocks = blocks_of(tensor)
    each = (tensor.rows, tensor.cols // BLOCK_VALUES)
    minimum = None if blocks.minimum is None else blocks.minimum.reshape(each)
    bytes_suffice = compute == "int8" and tensor.format != "q8_0"
    return ef.QuantisedWeight(
        bytes_suffice, blocks.quants.reshape(*each, BLOCK_VALUES), blocks.scale.reshape(each), minimum
    )


def _product(x: NDArray[np.float32], weight: ReferenceWeight) -> NDArray[np.float32]:
    parts = [_part_product(x, part) for part in weight]
    return np.concatenate(parts, axis=1)


def _part_product(
    x: NDArray[np.float32], part: NDArray[np.float32] | ef.QuantisedWeight
) -> NDArray[np.float32]:
    if not isinstance(part, ef.QuantisedWeight):
        return ef.chain(x, part)
    if part.bytes_suffice:
        return ef.byte_chain(ef.quantised_to_8(x), part)
    return ef.block_chain(ef.quantised(x), part)


def _normed(x: NDArray[np.float32], norm: Norm | None) -> NDArray[np.float32]:
    return x if norm is None else ef.rms_norm(x, norm.weight, norm.eps)


def _rotate(x: NDArray[np.float32], cos: NDArray[np.float32], sin: NDArray[np.float32]) -> None:
    """x [rows, heads, head_dim] in place; cos and sin [rows, rope dim / 2]."""
    half = cos.shape[1]
    a, b = x[..., :half].copy(), x[..., half : 2 * half].copy()
    cos, sin = cos[:, None], sin[:, None]
    x[..., :half] = a * cos - b * sin
    x[..., half : 2 * half] = b * cos + a * sin


def _rounded(x: NDArray[np.float32], kv: KvPool) -> NDArray[Any]:
    if kv.dtype == "q8":
        return _eighths(x)
    if kv.dtype != "bf16":
        with np.errstate(over="ignore"):
            return x.astype(kv.k.dtype)
    bits = np.ascontiguousarray(x).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(
        np.uint16
    )


def _eighths(x: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Rows over the last axis as int8 and their scale, the largest magnitude over 127; zeros have scale zero.

    A row that is not finite has no quants and a scale that is not finite: who reads it sees it.
    """
    scale = np.abs(x).max(axis=-1, keepdims=True) / _F32(127)
    usable = (scale > 0) & np.isfinite(scale)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        quants = np.where(usable, np.clip(np.rint(x / scale), -127, 127), 0).astype(np.int8)
    return np.concatenate([quants.view(np.uint8), scale.astype(np.float32).view(np.uint8)], axis=-1)


def _widened(pages: NDArray[Any]) -> NDArray[np.float32]:
    if pages.dtype == np.uint8:
        scale = np.ascontiguousarray(pages[..., -4:]).view(np.float32)
        return np.asarray(np.ascontiguousarray(pages[..., :-4]).view(np.int8).astype(np.float32) * scale)
    if pages.dtype == np.uint16:
        return (pages.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return pages.astype(np.float32)
