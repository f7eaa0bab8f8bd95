"""The safetensors reader against the library's own, and against bent files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from sapwood.errors import ModelError
from sapwood.model.safetensors_file import read_safetensors

FUZZ = settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])


def write(path: Path, header: Any, body: bytes = b"") -> Path:
    raw = json.dumps(header).encode() if not isinstance(header, bytes) else header
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + body)
    return path


def test_values_are_those_of_the_library(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    arrays: dict[str, np.ndarray[Any, np.dtype[Any]]] = {
        "a": rng.normal(size=(3, 5)).astype(np.float32),
        "b": rng.normal(size=(7,)).astype(np.float16),
    }
    path = tmp_path / "m.safetensors"
    save_file(arrays, path, metadata={"format": "pt"})
    file = read_safetensors(path)
    assert set(file.entries) == {"a", "b"}
    a, b = file.tensor("a", "embed"), file.tensor("b", "final_norm")
    assert (a.name, a.format, a.rows, a.cols) == ("embed", "f32", 3, 5)
    assert (b.name, b.format, b.rows, b.cols) == ("final_norm", "f16", 1, 7)
    for tensor, stored in ((a, "a"), (b, "b")):
        np.testing.assert_array_equal(tensor.data.ravel(), load_file(path)[stored].ravel())
        assert tensor.data.flags.aligned


def test_bfloat16_keeps_its_bits(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file as save_torch

    values = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    save_torch({"w": values}, tmp_path / "m.safetensors")
    tensor = read_safetensors(tmp_path / "m.safetensors").tensor("w", "w")
    assert tensor.format == "bf16"
    np.testing.assert_array_equal(tensor.data, values.view(torch.uint16).numpy())


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 12]}, "12 bytes"),
        ({"dtype": "F32", "shape": [2, 2], "data_offsets": [8, 24]}, "8 to 24"),
        ({"dtype": "F32", "shape": [2, 2], "data_offsets": [16, 0]}, "16 to 0"),
        ({"dtype": "F32", "shape": [2, 2], "data_offsets": [-16, 0]}, "offsets"),
        ({"dtype": "F32", "shape": [2, 2], "data_offsets": [0]}, "offsets"),
        ({"dtype": "F32", "shape": [0, 2], "data_offsets": [0, 0]}, "shape"),
        ({"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 16]}, "16 bytes"),
        ({"dtype": "F32", "shape": [1, 2, 2], "data_offsets": [0, 16]}, "shape"),
        ({"dtype": "F32", "shape": "2", "data_offsets": [0, 16]}, "shape"),
        ({"dtype": "F8_E4M3", "shape": [4, 4], "data_offsets": [0, 16]}, "F8_E4M3"),
        ({"dtype": "I64", "shape": [2], "data_offsets": [0, 16]}, "I64"),
        ([1, 2], "object"),
    ],
)
def test_a_bent_entry_is_refused_by_name(entry: Any, message: str, tmp_path: Path) -> None:
    file = read_safetensors(write(tmp_path / "m.safetensors", {"w": entry}, bytes(16)))
    with pytest.raises(ModelError, match=f"'w'.*{message}"):
        file.tensor("w", "w")


@pytest.mark.parametrize("header", [b"", b"not json", b"[1]", b"[" * 100_000, b'{"a": \xff}', b"1" * 5000])
def test_a_bent_header_is_refused(header: bytes, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"m\.safetensors"):
        read_safetensors(write(tmp_path / "m.safetensors", header))


def test_a_header_longer_than_the_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    for content in (b"", b"1234567", (2**62).to_bytes(8, "little") + b"{}"):
        path.write_bytes(content)
        with pytest.raises(ModelError, match="cut"):
            read_safetensors(path)


@FUZZ
@given(data=st.data())
def test_flipped_or_cut_bytes_give_the_tensor_or_a_model_error(data: st.DataObject, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file({"w": np.arange(12, dtype=np.float32).reshape(3, 4)}, path)
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path.unlink()
    path.write_bytes(raw[: data.draw(st.one_of(st.just(len(raw)), st.integers(0, len(raw))))])
    try:
        file = read_safetensors(path)
        tensor = file.tensor("w", "w")
    except ModelError:
        return
    assert tensor.data.shape == (tensor.rows, tensor.cols)
