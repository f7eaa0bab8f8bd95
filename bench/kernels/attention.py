"""Attention over pages: prefill by operations, decode by bytes of KV, at three lengths of context.

The ladder: the slow twin (at the shortest context), the kernels, what sequences gain that share a trunk, and the
floors, which are the memory's bandwidth and the peak of the multipliers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sapwood.model.kv import KvPool, empty_pages, row_width
from sapwood.model.ops import HeadLayout, StepSpans
from sapwood.model.ops_reference import ReferenceOps

from ..document import tell
from ..rows import Goal, Measure, Row
from ..sizes import Size, sized
from ..stats import Pair, median
from .blas import torch_attention
from .floors import Floors
from .timing import Rounds, in_turns

if TYPE_CHECKING:
    from sapwood.config import KvDtype
    from sapwood.model.ops_native import NativeOps

LAYOUT = HeadLayout(9, 3, 64)
"""The default model's."""


@dataclass(frozen=True, slots=True)
class Step:
    """`sequences` equal sequences whose last `rows` tokens attend to `context` tokens, their own included."""

    kind: str
    sequences: int
    rows: int
    context: int
    scattered: bool = False
    """Whether neighbouring tokens lie on pages far from each other."""
    dtype: KvDtype = "f16"
    shared: int = 0
    """Tokens that all sequences have in common, on the same pages."""

    def __str__(self) -> str:
        notes = ", scattered pages" * self.scattered + f", {self.dtype} pages" * (self.dtype != "f16")
        notes += f", {self.shared} shared" * bool(self.shared)
        return f"attention {self.kind} {self.sequences}×{self.rows} at {self.context}{notes}"

    @property
    def start(self) -> int:
        return self.context - self.rows

    @property
    def operations(self) -> int:
        keys = sum(range(self.start + 1, self.context + 1))
        return 4 * LAYOUT.heads * LAYOUT.head_dim * keys * self.sequences

    @property
    def kv_bytes(self) -> int:
        row = row_width(LAYOUT.head_dim, self.dtype) * (1 if self.dtype == "q8" else 2)
        return 2 * LAYOUT.kv_heads * row * self.context * self.sequences

    @property
    def tables(self) -> NDArray[np.int32]:
        """The page tables one after another, over as many pages as they name."""
        own = self.context - self.shared
        pages = np.arange(self.shared + self.sequences * own, dtype=np.int32)
        if self.scattered:
            pages = np.random.default_rng(1).permutation(pages)
        common, rest = pages[: self.shared], pages[self.shared :].reshape(self.sequences, own)
        return np.concatenate([np.concatenate([common, each]) for each in rest])


def rows(ops: NativeOps, torch: Any | None, floors: Floors, size: Size) -> Iterator[Row]:
    for step in _steps(size):
        tell(str(step))
        functions: dict[str, Callable[[], object]] = {
            "ours": _native(ops, step, enough=sized(size, quick=2**16, normal=2**27))
        }
        if torch is not None and step.sequences == 1:
            functions["torch"] = _torch(torch, step)
        taken = in_turns(functions, Rounds.of(size))
        yield _row(step, taken, floors)
    yield from _trunks(ops, size)
    slow = in_turns({"twin": _twin(size)}, Rounds(1, 0.0))["twin"]
    yield Row(
        "attention reference, decode 1×1", Measure("time", "ms", "lower"), [Pair(1e3 * t, None) for t in slow]
    )


def _trunks(ops: NativeOps, size: Size) -> Iterator[Row]:
    """The same step with and without reading what is shared once."""
    apart = type(ops)(ops.threads, trunks=False)
    shared = sized(size, quick=64, normal=1500)
    for sequences, own in ((16, 32), (8, 132)):
        step = Step("decode", sequences, 1, shared + own, shared=shared)
        tell(str(step))
        functions = {who: _native(of, step, 2**26) for who, of in (("trunk", ops), ("apart", apart))}
        taken = in_turns(functions, Rounds.of(size))
        times = {who: [1e6 * seconds for seconds in each] for who, each in taken.items()}
        pairs = [Pair(*both) for both in zip(times["trunk"], times["apart"], strict=True)]
        yield Row(str(step), Measure("time", "µs", "lower"), pairs, "each sequence alone")


def _twin(size: Size) -> Callable[[], object]:
    """One decode step of the slow twin."""
    return _native(ReferenceOps(), Step("decode", 1, 1, sized(size, quick=96, normal=512)), 1)


def _steps(size: Size) -> Iterator[Step]:
    for context in sized(size, quick=(96,), normal=(512, 2048, 4096)):
        yield Step("prefill", 1, min(context, 512), context)
        yield Step("decode", 1, 1, context)
        yield Step("decode", 8, 1, context)
        yield Step("decode", 1, 1, context, scattered=True)
        yield Step("decode", 8, 1, context, scattered=True)
        yield Step("decode", 8, 1, context, dtype="q8")


def _row(step: Step, taken: Mapping[str, list[float]], floors: Floors) -> Row:
    work = step.operations if step.kind == "prefill" else step.kv_bytes
    unit = "GFLOP/s" if step.kind == "prefill" else "GB/s"
    rates = {who: [work / seconds / 1e9 for seconds in times] for who, times in taken.items()}
    detail = {"µs": 1e6 * median(taken["ours"])}
    if "torch" in rates:
        detail[f"torch f32 {unit}"] = median(rates["torch"])
    if step.kind == "prefill":
        floor, against, goal = floors.peak / 1e9, "f32 peak (estimate)", 0.45
    else:
        floor, against, goal = floors.bandwidth / 1e9, "measured bandwidth", 0.6
    measure = Measure(
        "rate", unit, "higher", Goal("ratio", "at least", goal) if step.context >= 4096 else None
    )
    return Row(str(step), measure, [Pair(rate, floor) for rate in rates["ours"]], against, detail=detail)


def _native(ops: NativeOps | ReferenceOps, step: Step, enough: int) -> Callable[[], object]:
    """One call attends in the next of so many layers that no cache holds all their KV."""
    layers = max(1, -(-enough // step.kv_bytes))
    tables = step.tables
    kv = _pool(layers, int(tables.max()) + 1, step.dtype)
    total = step.sequences * step.rows
    each = np.full(step.sequences, step.rows, np.int32), np.full(step.sequences, step.start, np.int32)
    plan: Any = ops.plan(StepSpans(*each, tables), kv)
    qkv = np.random.default_rng(1).standard_normal((total, LAYOUT.qkv_width), np.float32)
    out = np.empty((total, LAYOUT.heads * LAYOUT.head_dim), np.float32)
    turn = cycle(range(layers))
    return lambda: ops.attention(plan, qkv, LAYOUT, next(turn), out)


def _pool(layers: int, pages: int, dtype: KvDtype) -> KvPool:
    rng = np.random.default_rng(0)
    shape = (pages, 1, LAYOUT.kv_heads, LAYOUT.head_dim)
    one: NDArray[Any] = rng.standard_normal(shape, np.float32).astype(np.float16)
    if dtype == "q8":
        quants = rng.integers(-127, 128, shape).astype(np.int8).view(np.uint8)
        scales = np.full((*shape[:-1], 1), 0.01, np.float32).view(np.uint8)
        one = np.concatenate([quants, scales], axis=-1)
    k, v = (empty_pages((layers, *one.shape), dtype) for _ in range(2))
    k[:], v[:] = one, one
    return KvPool(k, v, dtype)


def _torch(torch: Any, step: Step) -> Callable[[], object]:
    rng = np.random.default_rng(0)

    def floats(length: int) -> NDArray[np.float32]:
        return rng.standard_normal((LAYOUT.heads, length, LAYOUT.head_dim), np.float32)

    return torch_attention(torch, floats(step.rows), floats(step.context), floats(step.context), step.start)
