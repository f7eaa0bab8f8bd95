"""The default ops: C++ kernels that keep the exactness contract (design, section 3). x86-64-v3 or 64-bit Arm."""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from sapwood.errors import UsageError
from sapwood.model.ops import Picked, Ranked

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sapwood.config import Compute
    from sapwood.model import _native
    from sapwood.model.kv import KvPool
    from sapwood.model.ops import Activation, HeadLayout, HeadNorms, Norm, RopeTables, StepSpans
    from sapwood.model.tensor import RawTensor
    from sapwood.types import SamplingParams

MOST_THREADS = 256

MOST_TOKENS = 2**31 - 1
"""That top_k can say there; no vocabulary has as many."""

_X86_NEEDS = frozenset({"avx2", "fma", "f16c"})


def missing_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """CPU features the compiled kernels need and this machine lacks; asked before the extension is loaded."""
    machine = platform.machine().lower()
    if machine in ("aarch64", "arm64"):
        return frozenset()
    if machine not in ("x86_64", "amd64"):
        return frozenset({machine})
    if not cpuinfo.exists():
        return frozenset()
    flags = {
        word for line in cpuinfo.read_text().splitlines() if line.startswith("flags") for word in line.split()
    }
    return _X86_NEEDS - flags


@dataclass(frozen=True, slots=True)
class NativePlan:
    """A step's spans as the kernels want them, and the pool's layers."""

    spans: _native.Spans
    layers: Sequence[_native.LayerPages]


@dataclass(frozen=True, slots=True)
class NativeProgram:
    """A recording of the kernels' calls, over the pages of one pool."""

    workers: _native.Workers
    layers: Sequence[_native.LayerPages]
    recording: _native.Recording

    def run(self, plan: NativePlan) -> None:
        if plan.layers is not self.layers:
            raise ValueError("spans of another pool")
        self.recording.run(self.workers, plan.spans)


class _Noting(threading.local):
    """The recording that a thread's calls go to: another thread's are done meanwhile, not noted."""

    recording: _native.Recording | None = None


class NativeOps:
    """May be called by several threads: each op is done whole, one after the other; a program counts as one."""

    name = "native"
    exact = True

    def __init__(
        self, threads: int, compute: Compute = "auto", *, trunks: bool = True, variant: str | None = None
    ) -> None:
        """The same bits, slower: `trunks` False reads what several sequences share once for each of them; `variant`
        names another of _native.integer_variants than the best.
        """
        missing = missing_features()
        if missing:
            raise UsageError(
                f"the native kernels need CPU features this machine lacks: {', '.join(sorted(missing))}"
            )
        if not 1 <= threads <= MOST_THREADS:
            raise UsageError(f"threads is {threads}; it must be between 1 and {MOST_THREADS}")
        from sapwood.model import _native

        self._native = _native
        self.compute = compute
        self._variant = variant or _native.integer_variants[0]
        try:
            self._workers = _native.Workers(threads)
        except RuntimeError as error:
            raise UsageError(f"cannot start {threads} threads: {error}", hint="lower --threads") from error
        self._arena = _native.Arena()
        self._trunks = trunks
        self._layers: WeakKeyDictionary[KvPool, Sequence[_native.LayerPages]] = WeakKeyDictionary()
        self._noting = _Noting()

    @property
    def threads(self) -> int:
        return self._workers.threads

    @property
    def scratch_bytes(self) -> int:
        """Memory that the kernels keep for their intermediate results."""
        return self._workers.scratch_bytes

    def pack(self, tensors: Sequence[RawTensor]) -> _native.PackedMatrix:
        compute = "integer" if self.compute == "auto" else self.compute
        packed = self._native.PackedMatrix(tensors[0].cols, compute, self._arena, self._variant)
        for tensor in tensors:
            raw = np.ascontiguousarray(tensor.data).reshape(tensor.rows, -1).view(np.uint8)
            packed.append(tensor.format, raw)
        return packed

    def plan(self, spans: StepSpans, kv: KvPool) -> NativePlan:
        spans_ = self._native.Spans(
            spans.rows, spans.starts, spans.pages, kv.page_size, kv.pages, self._trunks
        )
        return NativePlan(spans_, self._layers_of(kv))

    def embed(
        self, table: RawTensor, tokens: NDArray[np.int32], out: NDArray[np.float32], *, scale: float = 1.0
    ) -> None:
        rows = np.ascontiguousarray(table.data).view(np.uint8)
        self._native.embed(table.format, rows, tokens, scale, out)

    def rms_norm(
        self, x: NDArray[np.float32], norm: Norm, out: NDArray[np.float32], *, accumulate: bool = False
    ) -> None:
        self._native.rms_norm(
            self._workers, x, norm.weight, norm.eps, out, accumulate, self._noting.recording
        )

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
        if norm is None:
            self._native.linear(
                self._workers, x, weight, out, None, 0.0, bias, accumulate, self._noting.recording
            )
        else:
            self._native.linear(
                self._workers, x, weight, out, norm.weight, norm.eps, bias, accumulate, self._noting.recording
            )

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
        weight, eps = (None, 0.0) if norm is None else (norm.weight, norm.eps)
        self._native.gated_linear(
            self._workers, x, gate, up, out, weight, eps, activation, self._noting.recording
        )

    def rope_and_store(
        self,
        plan: NativePlan,
        qkv: NDArray[np.float32],
        layout: HeadLayout,
        rope: RopeTables,
        layer: int,
        norms: HeadNorms | None = None,
    ) -> None:
        q, k, eps = (norms.q, norms.k, norms.eps) if norms else (None, None, 0.0)
        self._native.rope_and_store(
            self._workers,
            plan.spans,
            qkv,
            self._shape(layout),
            rope.cos,
            rope.sin,
            plan.layers[layer],
            q,
            k,
            eps,
            self._noting.recording,
        )

    def attention(
        self,
        plan: NativePlan,
        qkv: NDArray[np.float32],
        layout: HeadLayout,
        layer: int,
        out: NDArray[np.float32],
        *,
        window: int | None = None,
        scale: float | None = None,
    ) -> None:
        self._native.attention(
            self._workers,
            plan.spans,
            qkv,
            self._shape(layout),
            layout.head_dim**-0.5 if scale is None else scale,
            window or 0,
            plan.layers[layer],
            out,
            self._noting.recording,
        )

    def program(self, walk: Callable[[NativePlan], None], plan: NativePlan) -> NativeProgram:
        recording = self._native.Recording(plan.spans)
        self._noting.recording = recording
        try:
            walk(plan)
        finally:
            self._noting.recording = None
        return NativeProgram(self._workers, plan.layers, recording)

    def uniform(self, seed: int, sample: int, position: int) -> float:
        return self._native.uniform(seed, sample, position)

    def pick(
        self, rows: Sequence[NDArray[np.float32]], params: Sequence[SamplingParams], numbers: Sequence[float]
    ) -> Picked:
        draws = [
            self._native.Draw(p.temperature, min(p.top_k, MOST_TOKENS), p.top_p, p.min_p, number)
            for p, number in zip(params, numbers, strict=True)
        ]
        picked = Picked(np.empty(len(rows), np.int32), np.empty(len(rows), bool))
        self._native.pick(self._workers, rows, draws, picked.tokens, picked.finite)
        return picked

    def rank(self, rows: Sequence[NDArray[np.float32]], top: int) -> Ranked:
        count = len(rows)
        ranked = Ranked(
            np.empty((count, top), np.int32), np.empty(count), np.empty(count), np.empty(count, bool)
        )
        self._native.rank(self._workers, rows, ranked.tokens, ranked.peaks, ranked.weights, ranked.finite)
        return ranked

    def _shape(self, layout: HeadLayout) -> _native.HeadShape:
        return self._native.HeadShape(layout.heads, layout.kv_heads, layout.head_dim)

    def _layers_of(self, kv: KvPool) -> Sequence[_native.LayerPages]:
        """Made once for each pool and kept as long as it lives: programs are known by them."""
        layers = self._layers.get(kv)
        if layers is not None:
            return layers
        pairs = zip(_words(kv.k), _words(kv.v), strict=True)
        return self._layers.setdefault(kv, [self._native.LayerPages(k, v, kv.dtype) for k, v in pairs])


def _words(pages: NDArray[Any]) -> NDArray[Any]:
    return pages.view(np.uint16) if pages.dtype == np.float16 else pages
