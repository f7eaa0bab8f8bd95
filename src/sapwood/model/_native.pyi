from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

variant: str
integer_variants: tuple[str, ...]
"""Those that this machine runs, the best first."""

class Workers:
    def __init__(self, threads: int) -> None: ...
    @property
    def threads(self) -> int: ...
    @property
    def scratch_bytes(self) -> int: ...

class Arena:
    def __init__(self) -> None: ...

class PackedMatrix:
    def __init__(self, inputs: int, compute: str, arena: Arena, variant: str) -> None: ...
    def append(self, format: str, rows: NDArray[np.uint8]) -> None: ...
    @property
    def inputs(self) -> int: ...
    @property
    def outputs(self) -> int: ...
    @property
    def nbytes(self) -> int: ...

class HeadShape:
    def __init__(self, heads: int, kv_heads: int, head_dim: int) -> None: ...

class LayerPages:
    def __init__(self, k: NDArray[Any], v: NDArray[Any], type: str) -> None: ...

class Spans:
    def __init__(
        self,
        rows: NDArray[np.int32],
        starts: NDArray[np.int32],
        pages: NDArray[np.int32],
        page_size: int,
        capacity: int,
        trunks: bool,
    ) -> None: ...

class Recording:
    def __init__(self, spans: Spans) -> None: ...
    def run(self, workers: Workers, spans: Spans) -> None: ...
    def __len__(self) -> int: ...

def linear(
    workers: Workers,
    x: NDArray[np.float32],
    w: PackedMatrix,
    out: NDArray[np.float32],
    norm: NDArray[np.float32] | None,
    eps: float,
    bias: NDArray[np.float32] | None,
    accumulate: bool,
    recording: Recording | None = None,
) -> None: ...
def gated_linear(
    workers: Workers,
    x: NDArray[np.float32],
    gate: PackedMatrix,
    up: PackedMatrix,
    out: NDArray[np.float32],
    norm: NDArray[np.float32] | None,
    eps: float,
    activation: str,
    recording: Recording | None = None,
) -> None: ...
def rms_norm(
    workers: Workers,
    x: NDArray[np.float32],
    weight: NDArray[np.float32],
    eps: float,
    out: NDArray[np.float32],
    accumulate: bool,
    recording: Recording | None = None,
) -> None: ...
def rope_and_store(
    workers: Workers,
    spans: Spans,
    qkv: NDArray[np.float32],
    shape: HeadShape,
    cos: NDArray[np.float32],
    sin: NDArray[np.float32],
    layer: LayerPages,
    q_norm: NDArray[np.float32] | None,
    k_norm: NDArray[np.float32] | None,
    eps: float,
    recording: Recording | None = None,
) -> None: ...
def attention(
    workers: Workers,
    spans: Spans,
    qkv: NDArray[np.float32],
    shape: HeadShape,
    scale: float,
    window: int,
    layer: LayerPages,
    out: NDArray[np.float32],
    recording: Recording | None = None,
) -> None: ...
def embed(
    format: str,
    table: NDArray[np.uint8],
    tokens: NDArray[np.int32],
    scale: float,
    out: NDArray[np.float32],
) -> None: ...

class Draw:
    def __init__(self, temperature: float, top_k: int, top_p: float, min_p: float, number: float) -> None: ...

def uniform(seed: int, sample: int, position: int) -> float: ...
def pick(
    workers: Workers,
    rows: Sequence[NDArray[np.float32]],
    draws: Sequence[Draw],
    tokens: NDArray[np.int32],
    finite: NDArray[np.bool_],
) -> None: ...
def rank(
    workers: Workers,
    rows: Sequence[NDArray[np.float32]],
    tokens: NDArray[np.int32],
    peaks: NDArray[np.float64],
    weights: NDArray[np.float64],
    finite: NDArray[np.bool_],
) -> None: ...
