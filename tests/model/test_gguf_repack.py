"""Blocks laid out anew, judged by the gguf package's own reading of the stored ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants
from numpy.typing import NDArray

from sapwood.errors import ModelError
from sapwood.model.gguf_convert import from_gguf, to_f32
from sapwood.model.gguf_file import BlockLayout, GgufTensor

ROWS, COLS = 7, 512


def stored(kind: str, seed: int, *scales_at: int, largest: float = 0.1) -> GgufTensor:
    """Random quants under random scales in float16."""
    values, size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    rng = np.random.default_rng(seed)
    data = rng.integers(0, 256, (ROWS, COLS // values * size), dtype=np.uint8)
    blocks = data.reshape(-1, size)
    for at in scales_at:
        scale = (largest * rng.uniform(-1, 1, len(blocks))).astype(np.float16)
        blocks[:, at : at + 2] = scale[:, None].view(np.uint8)
    return GgufTensor("blk.0.attn_q.weight", BlockLayout(kind, values, size), ROWS, COLS, data)


def judged(tensor: GgufTensor) -> NDArray[Any]:
    return np.asarray(quants.dequantize(tensor.data, GGMLQuantizationType[tensor.layout.name]))


@pytest.mark.parametrize("seed", range(5))
def test_q5_0_is_q8_0_exactly(seed: int) -> None:
    tensor = stored("Q5_0", seed, 0)
    ours = from_gguf(tensor, "layers.0.q")
    assert ours.format == "q8_0"
    np.testing.assert_array_equal(to_f32(ours), judged(tensor))


@pytest.mark.parametrize("seed", range(5))
def test_q4_k_is_q4_1_but_for_the_rounding_of_its_scales(seed: int) -> None:
    tensor = stored("Q4_K", seed, 0, 2)
    ours = from_gguf(tensor, "layers.0.q")
    assert ours.format == "q4_1"
    exact = judged(tensor).reshape(-1, 32)
    found = to_f32(ours).reshape(-1, 32)
    heads = ours.data.reshape(-1, 20)[:, :4].copy().view(np.float16).astype(np.float64)
    # Each scale is off by half a unit of float16's last place; the quants, up to 15, are the stored ones.
    off = np.spacing(np.abs(heads).astype(np.float16)).astype(np.float64) / 2
    bound = 15 * off[:, 0] + off[:, 1] + 1e-6
    assert (np.abs(found - exact) <= bound[:, None]).all()


def test_a_scale_beyond_float16_is_refused_by_name() -> None:
    with pytest.raises(ModelError, match=r"blk\.0\.attn_q\.weight.*65504"):
        from_gguf(stored("Q4_K", 0, 0, 2, largest=60_000.0), "layers.0.q")
