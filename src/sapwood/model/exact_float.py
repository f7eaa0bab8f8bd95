"""Float32 arithmetic of the kernels in plain numpy: the fused multiply-add, exp and sums with their exact roundings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

LANES = 8
BLOCK = 32


@dataclass(frozen=True, slots=True)
class QuantisedRows:
    """Rows of activations: `q` whole numbers of 16 bits [M, K], `scale` float32 [M]; x ≈ scale · q."""

    q: NDArray[np.float64]
    scale: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ByteRows:
    """`q` whole numbers of 8 bits [M, K / 32, 32], `block_scale` float32 [M, K / 32], `scale` [M], 1 or NaN."""

    q: NDArray[np.float64]
    block_scale: NDArray[np.float32]
    scale: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class QuantisedWeight:
    """`q` int8 [N, K / 32, 32], `scale` and `minimum` float32 [N, K / 32]; w = scale · q + minimum."""

    bytes_suffice: bool
    """Whether it is multiplied with rows of 8 bits."""
    q: NDArray[np.int8]
    scale: NDArray[np.float32]
    minimum: NDArray[np.float32] | None


def fma(a: ArrayLike, b: ArrayLike, c: ArrayLike) -> NDArray[np.float32]:
    """a · b + c in float32, rounded once (broadcasting).

    The product of two float32 is exact in float64; the sum is rounded to odd there (Boldo and Melquiond, "Emulation
    of a FMA and correctly-rounded sums", 2008), after which rounding to float32 is the one rounding that counts.
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        product = np.asarray(a, np.float64) * np.asarray(b, np.float64)
        addend = np.asarray(c, np.float64)
        total = np.asarray(product + addend)
        back = total - product
        error = (product - (total - back)) + (addend - back)
        bits = total.view(np.int64)
        inexact = (error != 0) & np.isfinite(total) & (bits & 1 == 0)
        towards = np.where((error > 0) == (total > 0), 1, -1)
        odd = np.where(inexact, bits + towards, bits).view(np.float64)
        return odd.astype(np.float32)


def chain(x: NDArray[np.float32], weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """x [M, K] · weight [N, K]ᵀ as one chain of fused multiply-adds per output, k ascending; [M, N]."""
    total = np.zeros((x.shape[0], weight.shape[0]), np.float32)
    for k in range(x.shape[1]):
        total = fma(x[:, k, None], weight[None, :, k], total)
    return total


def quantised(x: NDArray[np.float32]) -> QuantisedRows:
    """Rows as 16-bit integers times a power of two each, the smallest that holds the row's largest magnitude.

    A row that is not finite throughout becomes zeros with a scale of NaN.
    """
    exponents = (np.ascontiguousarray(np.abs(x)).view(np.int32).max(axis=1) >> 23) - 127
    finite: NDArray[np.bool_] = np.array(exponents < 128)
    shift = np.clip(exponents - 14, -126, 126).astype(np.int32)
    with np.errstate(invalid="ignore"):
        scaled = np.where(finite[:, None], x, np.float32(0)) * np.ldexp(np.float32(1), -shift)[:, None]
    q = np.clip(np.rint(scaled), -32768, 32767).astype(np.float64)
    scale = np.where(finite, np.ldexp(np.float32(1), shift), np.float32(np.nan))
    return QuantisedRows(q, scale.astype(np.float32))


def quantised_to_8(x: NDArray[np.float32]) -> ByteRows:
    """Each block of 32 as 8-bit integers times its largest magnitude / 127; below 2^-100 a block is zero.

    A row that is not finite throughout becomes zeros with a scale of NaN.
    """
    finite: NDArray[np.bool_] = np.array(np.isfinite(x).all(axis=1))
    blocks = np.where(finite[:, None], x, np.float32(0)).reshape(len(x), x.shape[1] // BLOCK, BLOCK)
    most = np.abs(blocks).max(axis=2)
    zero = most < np.float32(2.0**-100)
    safe = np.where(zero, np.float32(1), most)
    up = np.where(zero, np.float32(0), np.float32(127) / safe)
    scale = np.where(zero, np.float32(0), safe / np.float32(127))
    q = np.rint(blocks * up[:, :, None]).astype(np.float64)
    return ByteRows(q, scale, np.where(finite, np.float32(1), np.float32(np.nan)))


def byte_chain(rows: ByteRows, weight: QuantisedWeight) -> NDArray[np.float32]:
    """As `block_chain`; a block's sum is multiplied by the block's own scale first."""
    total = np.zeros((len(rows.q), len(weight.q)), np.float32)
    for b in range(rows.q.shape[1]):
        scale = rows.block_scale[:, b, None]
        dots = rows.q[:, b] @ weight.q[:, b].T.astype(np.float64)
        total = fma(_times(dots, scale), weight.scale[None, :, b], total)
        if weight.minimum is not None:
            sums = rows.q[:, b].sum(axis=1)[:, None]
            total = fma(_times(sums, scale), weight.minimum[None, :, b], total)
    return _times(total, rows.scale[:, None])


def _times(a: NDArray[Any], b: NDArray[np.float32]) -> NDArray[np.float32]:
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        return np.asarray(a.astype(np.float32) * b)


def block_chain(rows: QuantisedRows, weight: QuantisedWeight) -> NDArray[np.float32]:
    """Exact sums over blocks of 32, chained by fused multiply-adds in ascending order, scaled at the end.

    Sums of whole numbers below 2^53 are exact in float64 whatever their order, so a BLAS may take them.
    """
    q = rows.q.reshape(len(rows.q), rows.q.shape[1] // BLOCK, BLOCK)
    total = np.zeros((len(q), len(weight.q)), np.float32)
    for b in range(q.shape[1]):
        dots = q[:, b] @ weight.q[:, b].T.astype(np.float64)
        total = fma(dots.astype(np.float32), weight.scale[None, :, b], total)
        if weight.minimum is not None:
            total = fma(q[:, b].sum(axis=1).astype(np.float32)[:, None], weight.minimum[None, :, b], total)
    return _times(total, rows.scale[:, None])


def sum_lanes(lanes: NDArray[np.float32]) -> NDArray[np.float32]:
    """The one tree over the last axis of 8 lanes."""
    quads = lanes[..., :4] + lanes[..., 4:]
    pairs = quads[..., :2] + quads[..., 2:]
    return np.asarray(pairs[..., 0] + pairs[..., 1])


def exp(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The kernels' exp: Cody-Waite reduction, then the degree-6 polynomial of Cephes' expf (Moshier), by Horner."""
    f = np.float32
    with np.errstate(invalid="ignore"):
        dead = x < f(-87.33)
        x = np.where(x > f(88.37), f(88.37), x)
        x = np.where(dead, f(-87.33), x).astype(f)
        n = np.rint(x * f(1.44269504088896341))
    r = fma(n, f(-0.693359375), x)
    r = fma(n, f(2.12194440e-4), r)
    p: NDArray[np.float32] = np.full_like(r, f(1.9875691500e-4))
    for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = fma(p, r, f(c))
    p = fma(p, r * r, r) + f(1)
    scale = ((np.nan_to_num(n).astype(np.int32) + 127) << 23).view(np.float32)
    return np.where(dead, f(0), p * scale).astype(f)


def silu(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(x / (np.float32(1) + exp(-x)))


def gelu_tanh(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """x / (1 + exp(-2u)) with u = √(2/π) · (x + 0.044715 x³): tanh's form without its cancellation at negative x."""
    f = np.float32
    with np.errstate(over="ignore"):
        cubic = fma(x * x, f(-0.0713548162726), f(-1.5957691216057))
        return np.asarray(x / (f(1) + exp(x * cubic)))


ACTIVATIONS: Mapping[str, Callable[[NDArray[np.float32]], NDArray[np.float32]]] = MappingProxyType(
    {"silu": silu, "gelu_tanh": gelu_tanh}
)


def rms_norm(x: NDArray[np.float32], weight: NDArray[np.float32], eps: float) -> NDArray[np.float32]:
    """Over the last axis: 8 lanes of fused squares, one tree, then scale and weight."""
    width = x.shape[-1]
    padded = np.zeros((*x.shape[:-1], -(-width // LANES) * LANES), np.float32)
    padded[..., :width] = x
    squares = np.zeros((*x.shape[:-1], LANES), np.float32)
    for i in range(0, padded.shape[-1], LANES):
        part = padded[..., i : i + LANES]
        squares = fma(part, part, squares)
    mean = sum_lanes(squares) / np.float32(width)
    scale = np.float32(1) / np.sqrt(mean + np.float32(eps))
    return np.asarray(x * scale[..., None] * weight)
