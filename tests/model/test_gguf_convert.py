"""Storage formats, judged by the gguf package and by arithmetic in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sapwood.errors import ModelError
from sapwood.model.gguf_convert import from_gguf, requantize, to_f32
from sapwood.model.gguf_file import BlockLayout, GgufTensor
from sapwood.model.tensor import BLOCK_BYTES, RawTensor, TensorFormat

ROWS, COLS = 5, 96


def matrix(seed: int = 0, cols: int = COLS) -> RawTensor:
    values = np.random.default_rng(seed).normal(size=(ROWS, cols)).astype(np.float32)
    return RawTensor("layers.0.q", "f32", ROWS, cols, values)


def by_hand(tensor: RawTensor) -> NDArray[np.float64]:
    """Each value from its block, in float64: exact, as every product and sum fits."""
    out = []
    for block in tensor.data.reshape(-1, BLOCK_BYTES[tensor.format]):
        d = float(block[:2].view(np.float16)[0])
        if tensor.format == "q8_0":
            out += [d * int(q) for q in block[2:].view(np.int8)]
            continue
        m = float(block[2:4].view(np.float16)[0]) if tensor.format == "q4_1" else -8.0 * d
        packed = block[4:] if tensor.format == "q4_1" else block[2:]
        out += [d * (int(byte) & 15) + m for byte in packed] + [d * (int(byte) >> 4) + m for byte in packed]
    return np.array(out).reshape(tensor.rows, tensor.cols)


@pytest.mark.parametrize("format", ["q8_0", "q4_0", "q4_1"])
def test_blocks_hold_what_float64_says_rounded_once(format: TensorFormat) -> None:
    for seed in range(20):
        tensor = requantize(matrix(seed), format)
        assert tensor.data.shape == (ROWS, COLS // 32 * BLOCK_BYTES[format])
        np.testing.assert_array_equal(to_f32(tensor), by_hand(tensor).astype(np.float32))


@settings(max_examples=50)
@given(st.binary(min_size=20 * 32, max_size=20 * 32))
def test_q4_1_is_rounded_once_for_any_block(raw: bytes) -> None:
    tensor = RawTensor("x", "q4_1", 1, 32 * 32, np.frombuffer(raw, np.uint8).reshape(1, -1))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(to_f32(tensor), by_hand(tensor).astype(np.float32))


@pytest.mark.parametrize("format", ["q8_0", "q4_0", "q4_1"])
def test_requantising_is_what_gguf_does_and_is_near(format: TensorFormat) -> None:
    tensor = matrix()
    ours = requantize(tensor, format)
    np.testing.assert_array_equal(
        ours.data, quants.quantize(tensor.data, GGMLQuantizationType[format.upper()])
    )
    most = np.abs(tensor.data).max() * {"q8_0": 0.005, "q4_0": 0.14, "q4_1": 0.08}[format]
    assert np.abs(to_f32(ours) - tensor.data).max() < most


@pytest.mark.parametrize("format", ["f16", "bf16", "f32"])
def test_float_formats_round_to_nearest(format: TensorFormat) -> None:
    import torch

    tensor = matrix()
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[format]
    expected = torch.from_numpy(tensor.data).to(dtype).to(torch.float32).numpy()
    np.testing.assert_array_equal(to_f32(requantize(tensor, format)), expected)
    assert requantize(tensor, "f32") is tensor


def test_what_does_not_fit_is_refused_by_name() -> None:
    with pytest.raises(ModelError, match=r"layers\.0\.q.*48"):
        requantize(matrix(cols=48), "q8_0")
    data = np.full((1, 32), 1e6, np.float32)
    with pytest.raises(ModelError, match=r"embed.*float16"):
        requantize(RawTensor("embed", "f32", 1, 32, data), "f16")
    with pytest.raises(ModelError, match=r"embed.*finite"):
        requantize(RawTensor("embed", "f32", 1, 32, data * np.float32(np.inf)), "q8_0")


def stored(kind: str, rows: int, cols: int, seed: int = 0) -> GgufTensor:
    """A tensor of a ggml type with random quants and tame scales."""
    from gguf import GGML_QUANT_SIZES

    values, size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    data = np.random.default_rng(seed).integers(0, 256, (rows, cols // values * size), dtype=np.uint8)
    blocks = data.reshape(-1, size)
    scale = np.array([0.01], np.float16).view(np.uint8)
    for at in {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "Q2_K": (80, 82), "Q5_0": (0,)}[kind]:
        blocks[:, at : at + 2] = scale
    return GgufTensor("blk.0.attn_q.weight", BlockLayout(kind, values, size), rows, cols, data)


@pytest.mark.parametrize(
    ("kind", "format"),
    [("Q6_K", "q8_0"), ("Q5_K", "q8_0"), ("Q5_0", "q8_0"), ("Q4_K", "q4_1"), ("Q2_K", "q4_1")],
)
def test_other_quants_become_the_nearest_of_ours(kind: str, format: str) -> None:
    tensor = stored(kind, 4, 512)
    ours = from_gguf(tensor, "layers.0.q")
    assert (ours.name, ours.format, ours.rows, ours.cols) == ("layers.0.q", format, 4, 512)
    exact: NDArray[Any] = quants.dequantize(tensor.data, GGMLQuantizationType[kind])
    spread = exact.max() - exact.min()
    assert np.abs(to_f32(ours) - exact).max() <= spread * (0.005 if format == "q8_0" else 0.05)


def test_a_type_that_cannot_be_read_is_refused_by_name() -> None:
    tensor = GgufTensor("blk.0.ffn_up.weight", BlockLayout("I32", 1, 4), 1, 4, np.zeros((1, 16), np.uint8))
    with pytest.raises(ModelError, match=r"blk\.0\.ffn_up\.weight.*I32"):
        from_gguf(tensor, "layers.0.up")
