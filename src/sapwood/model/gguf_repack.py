"""Stored blocks that our own formats hold as they are: the same quants under the same scales, only laid out anew.

Layouts: ggml's block_q5_0 and block_q4_K (github.com/ggml-org/ggml, src/ggml-common.h).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sapwood.model.tensor import TensorFormat

    Blocks = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Repacking:
    """`blocks` takes stored blocks [count, bytes] and gives those of `format` [more, bytes], in order.

    It raises ValueError where a scale is beyond float16.
    """

    format: TensorFormat
    blocks: Callable[[Blocks], Blocks]


def _q5_0(stored: Blocks) -> Blocks:
    """f16 d, 32 high bits, 32 low nibbles: d · (q − 16), which is q8_0 with the same d. Exact."""
    high = np.unpackbits(stored[:, 2:6], axis=1, bitorder="little")
    low = np.concatenate([stored[:, 6:] & 15, stored[:, 6:] >> 4], axis=1)
    quants = (low | high << 4).astype(np.int8) - np.int8(16)
    return np.concatenate([stored[:, :2], quants.view(np.uint8)], axis=1)


def _q4_k(stored: Blocks) -> Blocks:
    """Eight groups of 32: d · sc · q − dmin · mn, which is q4_1 but for d · sc and dmin · mn in float16.

    Products of f16 and 6 bits have up to 17 significant bits and are rounded to 11.
    """
    scales, mins = _six_bits(stored[:, 4:16])
    d, dmin = (halves(stored[:, at : at + 2]) for at in (0, 2))
    with np.errstate(all="ignore"):
        heads = np.stack([d * scales, -dmin * mins], axis=-1).astype(np.float16)
    if not np.isfinite(heads).all():
        raise ValueError("a scale is beyond float16's 65504")
    packed = stored[:, 16:].reshape(-1, 4, 32)
    groups = np.stack([packed & 15, packed >> 4], axis=2).reshape(-1, 8, 32)
    nibbles = groups[..., :16] | groups[..., 16:] << 4
    return np.concatenate([heads.view(np.uint8).reshape(-1, 8, 4), nibbles], axis=-1).reshape(-1, 20)


def _six_bits(packed: Blocks) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Eight scales and eight minima [count, 8] from 12 bytes: the last four of each have their top bits apart."""
    first, second, rest = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, (rest & 15) | (first >> 6) << 4], axis=1)
    mins = np.concatenate([second & 63, (rest >> 4) | (second >> 6) << 4], axis=1)
    return scales.astype(np.float32), mins.astype(np.float32)


def halves(pairs: Blocks) -> NDArray[np.float32]:
    """float16s that lie in bytes [count, 2], as float32 [count, 1]."""
    return np.ascontiguousarray(pairs).view(np.float16).astype(np.float32)


REPACKINGS: Mapping[str, Repacking] = MappingProxyType(
    {"Q5_0": Repacking("q8_0", _q5_0), "Q4_K": Repacking("q4_1", _q4_k)}
)
"""By ggml's name of the stored type."""
