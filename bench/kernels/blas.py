"""What others do with the same matrices: numpy's BLAS, and torch's where it is installed."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def load_torch(threads: int) -> Any | None:
    """The module, told its threads; None where it is not installed. Sapwood itself never needs it."""
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        return None
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    return torch


def numpy_linear(x: Floats, weights: Sequence[Floats], out: Floats) -> Callable[[], object]:
    """One call multiplies by the next of `weights`, each [outputs, inputs]."""
    turn = cycle([weight.T for weight in weights])
    return lambda: np.matmul(x, next(turn), out=out)


def torch_linear(torch: Any, x: Floats, weights: Sequence[Floats], out: Floats) -> Callable[[], object]:
    """The same, sharing numpy's memory."""
    turn = cycle([torch.from_numpy(weight).t() for weight in weights])
    rows, result = torch.from_numpy(x), torch.from_numpy(out)
    return lambda: torch.mm(rows, next(turn), out=result)


def torch_attention(torch: Any, q: Floats, k: Floats, v: Floats, start: int) -> Callable[[], object]:
    """Its fused attention in float32 over contiguous keys: no pages, no conversion, heads already repeated.

    q is [heads, rows, dim], k and v [heads, context, dim]; the first row stands at position `start`.
    """
    rows, context = q.shape[1], k.shape[1]
    mask = torch.arange(context)[None, :] <= torch.arange(start, start + rows)[:, None]
    tensors = [torch.from_numpy(array)[None] for array in (q, k, v)]
    attend = torch.nn.functional.scaled_dot_product_attention
    if rows == 1:
        return lambda: attend(*tensors)
    return lambda: attend(*tensors, attn_mask=mask)
