"""One decoder for every family: a pre-norm transformer of the Llama shape, its differences read from a ModelSpec."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sapwood.model.angles import cos_sin
from sapwood.model.gguf_convert import to_f32
from sapwood.model.mlp import Mlp, mlp_of
from sapwood.model.ops import HeadLayout, HeadNorms, Norm, RopeTables, StepSpans, Walk
from sapwood.model.tensor import RawTensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from sapwood.model.kv import KvPool
    from sapwood.model.ops import Ops, Program
    from sapwood.model.spec import ModelSpec, RopeSpec

_STEPS = 64
"""Row counts whose programs are kept, those used last; each takes some 30 kB."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's weights, packed for the ops. `window` None attends to everything."""

    attn_norm: Norm
    qkv: Any
    qkv_bias: NDArray[np.float32] | None
    head_norms: HeadNorms | None
    o: Any
    o_bias: NDArray[np.float32] | None
    attn_post_norm: Norm | None
    mlp_norm: Norm
    mlp: Mlp
    mlp_post_norm: Norm | None
    window: int | None


@dataclass(frozen=True, slots=True)
class Buffers:
    """Working rows of a step, [rows, width of each]; made anew only when a step is longer than any before."""

    x: NDArray[np.float32]
    qkv: NDArray[np.float32]
    attended: NDArray[np.float32]
    gated: NDArray[np.float32]
    branch: NDArray[np.float32]

    @classmethod
    def make(cls, rows: int, spec: ModelSpec, layout: HeadLayout) -> Buffers:
        branch = spec.hidden_size if spec.post_norms else 0
        widths = (spec.hidden_size, layout.qkv_width, layout.heads * layout.head_dim, spec.ffn_size, branch)
        return cls(*(np.empty((rows, width), np.float32) for width in widths))

    def first(self, rows: int) -> Buffers:
        mine = (self.x, self.qkv, self.attended, self.gated, self.branch)
        return Buffers(*(array[:rows] for array in mine))


@dataclass(frozen=True, slots=True)
class _Step:
    """What a step of so many rows does, and the rows that it works on."""

    work: Buffers
    program: Program


class Decoder:
    """Weights and the walk through them. Holds no KV and no sequence: a step brings both."""

    def __init__(
        self,
        spec: ModelSpec,
        tensors: Mapping[str, RawTensor],
        ops: Ops,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.spec = spec
        self.ops = ops
        self.layout = HeadLayout(spec.heads, spec.kv_heads, spec.head_dim)
        self._embed = tensors["embed"]
        self._layers: list[Layer] = []
        for i in range(spec.layers):
            self._layers.append(_layer(spec, tensors, i, ops))
            if progress is not None:
                progress(i + 1, spec.layers)
        self._final_norm = _norm(spec, tensors, "final_norm")
        self._head = ops.pack([self._embed if spec.tied else tensors["lm_head"]])
        self._ropes = _ropes_of(spec, 0)
        self._buffers = Buffers.make(1, spec, self.layout)
        self._steps: dict[int, _Step] = {}
        self._pool: KvPool | None = None

    def forward(self, tokens: NDArray[np.int32], spans: StepSpans, kv: KvPool) -> NDArray[np.float32]:
        """Computes every token's KV into its page; the final hidden rows [M, hidden_size], valid until the next call.

        Raises ValueError for token ids outside the vocabulary or a page table that does not fit.
        """
        self._prepare(spans, len(tokens))
        plan = self.ops.plan(spans, kv)
        step = self._step(len(tokens), plan, kv)
        self.ops.embed(self._embed, tokens, step.work.x, scale=self.spec.embed_scale)
        step.program.run(plan)
        return step.work.x

    def logits(self, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        """[rows, hidden_size] → [rows, vocab_size]."""
        out = np.empty((len(hidden), self.spec.vocab_size), np.float32)
        self.ops.linear(hidden, self._head, out, norm=self._final_norm)
        return out

    def _walk(self, work: Buffers, plan: Any) -> None:
        for i, layer in enumerate(self._layers):
            self._attend(layer, i, plan, work)
            post = layer.mlp_post_norm
            out = work.x if post is None else work.branch
            layer.mlp.run(self.ops, work.x, layer.mlp_norm, work.gated, out, accumulate=post is None)
            self._join(work, post)

    def _step(self, rows: int, plan: Any, kv: KvPool) -> _Step:
        """The step of so many rows over this pool, newly recorded if it is not among the last _STEPS."""
        if self._pool is not kv:
            self._steps, self._pool = {}, kv
        step = self._steps.pop(rows, None)
        if step is None:
            work = self._buffers.first(rows)
            walk = partial(self._walk, work)
            # Which experts are asked is known only when the router has spoken: nothing to note beforehand.
            step = _Step(work, self.ops.program(walk, plan) if self.spec.experts is None else Walk(walk))
            if len(self._steps) == _STEPS:
                del self._steps[next(iter(self._steps))]
        self._steps[rows] = step
        return step

    def _attend(self, layer: Layer, index: int, plan: Any, work: Buffers) -> None:
        ops, layout = self.ops, self.layout
        ops.linear(work.x, layer.qkv, work.qkv, norm=layer.attn_norm, bias=layer.qkv_bias)
        rope = self._ropes.everywhere if layer.window is None else self._ropes.sliding
        ops.rope_and_store(plan, work.qkv, layout, rope, index, layer.head_norms)
        scale = self.spec.attention_scale
        ops.attention(plan, work.qkv, layout, index, work.attended, window=layer.window, scale=scale)
        post = layer.attn_post_norm
        out = work.x if post is None else work.branch
        ops.linear(work.attended, layer.o, out, bias=layer.o_bias, accumulate=post is None)
        self._join(work, post)

    def _join(self, work: Buffers, post: Norm | None) -> None:
        """Norms what a half of a layer gave and adds it; without a norm it is added already."""
        if post is not None:
            self.ops.rms_norm(work.branch, post, work.x, accumulate=True)

    def _prepare(self, spans: StepSpans, rows: int) -> None:
        if rows > len(self._buffers.x):
            self._buffers = Buffers.make(rows, self.spec, self.layout)
            self._steps.clear()
        longest = int((spans.starts + spans.rows).max())
        if longest > len(self._ropes.everywhere.cos):
            self._ropes = _ropes_of(self.spec, 2 ** math.ceil(math.log2(max(longest, 512))))
            self._steps.clear()


@dataclass(frozen=True, slots=True)
class _Ropes:
    """The tables of the layers that see everything, and of those that slide."""

    everywhere: RopeTables
    sliding: RopeTables


def _ropes_of(spec: ModelSpec, positions: int) -> _Ropes:
    everywhere = rope_tables(spec.rope, positions)
    return _Ropes(
        everywhere, everywhere if spec.local_rope is None else rope_tables(spec.local_rope, positions)
    )


def rope_tables(rope: RopeSpec, positions: int) -> RopeTables:
    """cos and sin of every position and frequency, evaluated in float64 and rounded once.

    Row p depends on p alone, so a longer table has the same rows.
    """
    frequencies = rope.frequencies()
    turned = cos_sin(np.arange(positions, dtype=np.float64)[:, None] * frequencies.inverse[None])
    scale = frequencies.attention_scale
    return RopeTables((turned.cos * scale).astype(np.float32), (turned.sin * scale).astype(np.float32))


def _vector(tensors: Mapping[str, RawTensor], name: str) -> NDArray[np.float32]:
    return np.ascontiguousarray(to_f32(tensors[name]).reshape(-1))


def _norm(spec: ModelSpec, tensors: Mapping[str, RawTensor], name: str) -> Norm:
    return Norm(_vector(tensors, name), spec.norm_eps)


def _layer(spec: ModelSpec, tensors: Mapping[str, RawTensor], index: int, ops: Ops) -> Layer:
    def name(part: str) -> str:
        return f"layers.{index}.{part}"

    def pack(*parts: str) -> Any:
        return ops.pack([tensors[name(part)] for part in parts])

    def vector(part: str) -> NDArray[np.float32]:
        return _vector(tensors, name(part))

    def norm(part: str) -> Norm:
        return _norm(spec, tensors, name(part))

    return Layer(
        attn_norm=norm("attn_norm"),
        qkv=pack("q", "k", "v"),
        qkv_bias=np.concatenate([vector(f"{p}_bias") for p in "qkv"]) if spec.qkv_bias else None,
        head_norms=HeadNorms(vector("q_norm"), vector("k_norm"), spec.norm_eps) if spec.qk_norm else None,
        o=pack("o"),
        o_bias=vector("o_bias") if spec.o_bias else None,
        attn_post_norm=norm("attn_post_norm") if spec.post_norms else None,
        mlp_norm=norm("mlp_norm"),
        mlp=mlp_of(spec, pack),
        mlp_post_norm=norm("mlp_post_norm") if spec.post_norms else None,
        window=spec.sliding_window if spec.sliding_layers[index] else None,
    )
