"""Attention over pages: prefill by operations, decode by bytes of KV, at three lengths of context."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sapwood.model.kv import KvPool
from sapwood.model.ops import HeadLayout, StepSpans

from ..document import tell
from ..rows import Goal, Measure, Row
from ..sizes import Size, sized
from ..stats import Pair, median
from .blas import torch_attention
from .floors import Floors
from .timing import Rounds, in_turns

if TYPE_CHECKING:
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

    def __str__(self) -> str:
        pages = ", scattered pages" if self.scattered else ""
        return f"attention {self.kind} {self.sequences}×{self.rows} at {self.context}{pages}"

    @property
    def start(self) -> int:
        return self.context - self.rows

    @property
    def operations(self) -> int:
        keys = sum(range(self.start + 1, self.context + 1))
        return 4 * LAYOUT.heads * LAYOUT.head_dim * keys * self.sequences

    @property
    def kv_bytes(self) -> int:
        return 2 * 2 * LAYOUT.kv_heads * LAYOUT.head_dim * self.context * self.sequences


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


def _steps(size: Size) -> Iterator[Step]:
    for context in sized(size, quick=(96,), normal=(512, 2048, 4096)):
        yield Step("prefill", 1, min(context, 512), context)
        yield Step("decode", 1, 1, context)
        yield Step("decode", 8, 1, context)
        yield Step("decode", 8, 1, context, scattered=True)


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


def _native(ops: NativeOps, step: Step, enough: int) -> Callable[[], object]:
    """One call attends in the next of so many layers that no cache holds all their KV."""
    layers = max(1, -(-enough // step.kv_bytes))
    pages = step.sequences * step.context
    kv = KvPool(_halves((layers, pages)), _halves((layers, pages)), "f16")
    total = step.sequences * step.rows
    rng = np.random.default_rng(1)
    order = rng.permutation(pages) if step.scattered else np.arange(pages)
    each = np.full(step.sequences, step.rows, np.int32), np.full(step.sequences, step.start, np.int32)
    plan = ops.plan(StepSpans(*each, order.astype(np.int32)), kv)
    qkv = rng.standard_normal((total, LAYOUT.qkv_width), np.float32)
    out = np.empty((total, LAYOUT.heads * LAYOUT.head_dim), np.float32)
    turn = cycle(range(layers))
    return lambda: ops.attention(plan, qkv, LAYOUT, next(turn), out)


def _halves(layers_pages: tuple[int, int]) -> NDArray[np.float16]:
    shape = (*layers_pages, 1, LAYOUT.kv_heads, LAYOUT.head_dim)
    one = np.random.default_rng(0).standard_normal(shape[1:], np.float32).astype(np.float16)
    return np.broadcast_to(one, shape).copy()


def _torch(torch: Any, step: Step) -> Callable[[], object]:
    rng = np.random.default_rng(0)

    def floats(length: int) -> NDArray[np.float32]:
        return rng.standard_normal((LAYOUT.heads, length, LAYOUT.head_dim), np.float32)

    return torch_attention(torch, floats(step.rows), floats(step.context), floats(step.context), step.start)
