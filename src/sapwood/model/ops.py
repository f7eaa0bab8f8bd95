"""What a decoder asks of the machine. Three implementations: reference (numpy), native (C++), torch (an extra).

All arrays are float32 and row-major unless said; M is the number of token rows of a step. `plan` is made once per
step and handed to every layer (the plan/run split of FlashInfer, Ye et al. 2025).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sapwood.config import Compute
    from sapwood.model.kv import KvPool
    from sapwood.model.tensor import RawTensor
    from sapwood.types import SamplingParams


Activation = Literal["silu", "gelu_tanh"]
"""silu(g) = g / (1 + exp(-g)); gelu_tanh is GELU by its tanh approximation (Hendrycks and Gimpel 2016)."""


@dataclass(frozen=True, slots=True)
class Norm:
    """An RMS norm applied to rows on their way into a product."""

    weight: NDArray[np.float32]
    eps: float


@dataclass(frozen=True, slots=True)
class HeadLayout:
    heads: int
    kv_heads: int
    head_dim: int

    @property
    def qkv_width(self) -> int:
        return (self.heads + 2 * self.kv_heads) * self.head_dim


@dataclass(frozen=True, slots=True)
class RopeTables:
    """cos and sin [positions, rope dim / 2], float32."""

    cos: NDArray[np.float32]
    sin: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """RMS norms over head_dim of each query and key head, before the rotation (Qwen3)."""

    q: NDArray[np.float32]
    k: NDArray[np.float32]
    eps: float


@dataclass(frozen=True, slots=True)
class StepSpans:
    """The sequences of one step, in row order.

    Attributes:
        rows: int32 [S], token rows of each sequence.
        starts: int32 [S], position of each sequence's first row.
        pages: int32, the page tables one after another; each covers positions 0 .. start + rows - 1.
    """

    rows: NDArray[np.int32]
    starts: NDArray[np.int32]
    pages: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Picked:
    """What was drawn from rows of logits."""

    tokens: NDArray[np.int32]
    """[R]; 0, which means nothing, where a row has NaN or +inf."""
    finite: NDArray[np.bool_]
    """[R]: whether all logits of a row are."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """The likeliest tokens of rows of logits, and what their probabilities are made of."""

    tokens: NDArray[np.int32]
    """[R, top], the largest logit first, among equals the lower id."""
    peaks: NDArray[np.float64]
    """[R], the largest logits."""
    weights: NDArray[np.float64]
    """[R], the sums of exp(logit - peak)."""
    finite: NDArray[np.bool_]
    """[R]. Of a row with NaN or +inf, all else is 0."""


class Program(Protocol):
    """Calls of the ops over arrays that stay where they are; what they hold may change between runs."""

    def run(self, plan: Any) -> None:
        """Does them for the step that `plan` is of. Raises ValueError for one of other rows or another pool."""


@dataclass(frozen=True, slots=True)
class Walk:
    """A program that is walked anew at each run."""

    run: Callable[[Any], None]


class Ops(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def compute(self) -> Compute:
        """How products with block weights are computed: with `auto`, on rows rounded to 16-bit integers."""

    @property
    def exact(self) -> bool:
        """Whether the exactness contract holds: bits do not depend on batch, chunks, threads or reuse."""

    def pack(self, tensors: Sequence[RawTensor]) -> Any:
        """One weight from matrices of equal width, outputs one after another; each keeps its own format."""

    def plan(self, spans: StepSpans, kv: KvPool) -> Any:
        """Checks and prepares a step over these pages for rope_and_store and attention.

        Raises ValueError for a bad page table.
        """

    def embed(
        self, table: RawTensor, tokens: NDArray[np.int32], out: NDArray[np.float32], *, scale: float = 1.0
    ) -> None:
        """out[i] = table[tokens[i]] · scale. Raises ValueError for tokens outside the table."""

    def rms_norm(
        self, x: NDArray[np.float32], norm: Norm, out: NDArray[np.float32], *, accumulate: bool = False
    ) -> None:
        """out = norm(x), added to what is in `out` with `accumulate`."""

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
        """out = norm(x) · weightᵀ + bias, added to what is in `out` with `accumulate` (the residual)."""

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
        """out = activation(norm(x) · gateᵀ) * (norm(x) · upᵀ)."""

    def rope_and_store(
        self,
        plan: Any,
        qkv: NDArray[np.float32],
        layout: HeadLayout,
        rope: RopeTables,
        layer: int,
        norms: HeadNorms | None = None,
    ) -> None:
        """Rotates q in `qkv` [M, qkv_width]; rounds rotated k, and v, to the KV type and writes them to their pages."""

    def attention(
        self,
        plan: Any,
        qkv: NDArray[np.float32],
        layout: HeadLayout,
        layer: int,
        out: NDArray[np.float32],
        *,
        window: int | None = None,
        scale: float | None = None,
    ) -> None:
        """Causal attention of the step's queries over the pages, own tokens included; out [M, heads · head_dim].

        Queries are multiplied by `scale`, rounded to float32; None means head_dim^-0.5.
        """

    def program(self, walk: Callable[[Any], None], plan: Any) -> Program:
        """`run(plan)` of what comes back does what `walk(plan)` would, to the bit, for any plan of as many rows.

        `walk` is to call rms_norm, linear, gated_linear, rope_and_store and attention, and nothing else that matters:
        it may be called now, to note what it asks for, or at each run. Nothing is computed before `run`.
        """

    def uniform(self, seed: int, sample: int, position: int) -> float:
        """In [0, 1), 53 bits: the first number of Philox4x64-10 (Salmon et al. 2011) as numpy keys and counts it.

        All three are from 0 to 2⁶⁴ - 1.
        """

    def pick(
        self, rows: Sequence[NDArray[np.float32]], params: Sequence[SamplingParams], numbers: Sequence[float]
    ) -> Picked:
        """A token from each row of logits [vocab_size]: the one at which the cumulative weight passes the row's number.

        Of `params` temperature, top_k, top_p and min_p count. Tokens are taken by id, or from the likeliest down if
        any are cut. -inf is a token that cannot be drawn; each row has another. Greedy rows ignore their number.
        """

    def rank(self, rows: Sequence[NDArray[np.float32]], top: int) -> Ranked:
        """The `top` largest of each row of logits [vocab_size], at most that many."""
