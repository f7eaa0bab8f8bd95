"""Our GGUF reader against the gguf package's own, and against every way a file can be cut or bent."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model import tiny
from sapwood.errors import ModelError
from sapwood.model.checkpoint import load_checkpoint
from sapwood.model.gguf_file import GgufFile, read_gguf

FUZZ = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"])
def test_facts_and_bytes_are_those_of_the_gguf_package(kind: str, llama: Path, tmp_path: Path) -> None:
    path = tiny.gguf_of(llama, tmp_path / "m.gguf", kind, some__flag=True, some__list=[1.5, 2.5], some__int=7)
    ours, theirs = read_gguf(path), GGUFReader(path)
    named = {key: field for key, field in theirs.fields.items() if not key.startswith("GGUF.")}
    assert set(ours.facts) == set(named)
    for key, field in named.items():
        assert ours.facts[key] == field.contents(), key
    assert ours.facts["some.flag"] is True
    assert {t.name for t in theirs.tensors} == set(ours.tensors)
    for tensor in theirs.tensors:
        mine = ours.tensors[tensor.name]
        assert mine.layout.name == tensor.tensor_type.name
        np.testing.assert_array_equal(mine.data.ravel(), tensor.data.view(np.uint8).ravel())
        assert mine.rows * mine.cols == tensor.n_elements
        assert not mine.data.flags.owndata


def same(a: GgufFile, b: GgufFile) -> bool:
    if dict(a.facts) != dict(b.facts) or set(a.tensors) != set(b.tensors):
        return False
    return all(np.array_equal(a.tensors[name].data, b.tensors[name].data) for name in a.tensors)


def test_a_file_cut_anywhere_is_refused(llama_gguf: Path, tmp_path: Path) -> None:
    whole, cut = llama_gguf.read_bytes(), tmp_path / "cut.gguf"
    ends = {0, 3, 7, 23, 24, 100, 5000, len(whole) // 2, len(whole) - 64, *range(25, 4000, 97)}
    for end in sorted(ends):
        cut.write_bytes(whole[:end])
        with pytest.raises(ModelError, match=r"cut\.gguf"):
            read_gguf(cut)


def test_the_message_names_the_tensor_that_is_cut(llama_gguf: Path, tmp_path: Path) -> None:
    last = list(read_gguf(llama_gguf).tensors)[-1]
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(llama_gguf.read_bytes()[:-40])
    with pytest.raises(ModelError, match=last.replace(".", r"\.")):
        load_checkpoint(cut)


@FUZZ
@given(data=st.data())
def test_flipped_bytes_give_a_model_or_a_model_error(
    data: st.DataObject, llama_gguf: Path, tmp_path: Path
) -> None:
    whole = bytearray(llama_gguf.read_bytes())
    header = whole.index(b"blk.0.attn_norm") + 2000
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(
            st.one_of(st.integers(0, 1500), st.integers(0, header), st.integers(0, len(whole) - 1))
        )
        whole[at] = data.draw(st.integers(0, 255))
    bent = tmp_path / "bent.gguf"
    bent.unlink(missing_ok=True)
    bent.write_bytes(whole)
    try:
        checkpoint = load_checkpoint(bent)
    except ModelError:
        return
    for name, extent in checkpoint.spec.extents().items():
        tensor = checkpoint.tensors[name]
        assert (tensor.rows, tensor.cols) == (extent.rows, extent.cols)


def test_bytes_behind_the_last_tensor_do_not_matter(llama_gguf: Path, tmp_path: Path) -> None:
    longer = tmp_path / "longer.gguf"
    longer.write_bytes(llama_gguf.read_bytes() + b"\0" * 100)
    assert same(read_gguf(longer), read_gguf(llama_gguf))
    assert load_checkpoint(longer).fingerprint == load_checkpoint(llama_gguf).fingerprint


def fact(key: bytes, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(key)) + key + struct.pack("<I", kind) + value


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"GGML" + bytes(40), "does not begin with 'GGUF'"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "cut or corrupt"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**63) + bytes(40), "cut or corrupt"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + fact(b"a", 9, struct.pack("<IQ", 8, 2**61)), "key 'a'"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + fact(b"a", 9, struct.pack("<IQ", 4, 2**62)), "key 'a'"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + fact(b"a", 9, struct.pack("<IQ", 9, 1)), "key 'a'"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + fact(b"a", 99, bytes(8)), "unknown value type 99"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + fact(b"\xff", 4, bytes(4)), "UTF-8"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + fact(b"a", 4, bytes(4)) * 2, "appears twice"),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + fact(b"general.alignment", 4, struct.pack("<I", 24)),
            "general.alignment",
        ),
    ],
)
def test_a_bent_header_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bent.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message):
        read_gguf(path)
