"""From a name to a model that runs: weight formats, fingerprints, ops, and what is said where it cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from exact.lab import all_logits, prompt_of
from model import tiny
from sapwood.config import ModelConfig
from sapwood.errors import ModelError, UsageError
from sapwood.model import choose_ops, load_model, loading
from sapwood.model.checkpoint import load_checkpoint
from sapwood.model.decoder import Decoder
from sapwood.model.gguf_convert import requantize
from sapwood.model.ops_native import NativeOps, missing_features

if TYPE_CHECKING:
    from sapwood.config import Compute, KvDtype, WeightFormat
    from sapwood.model import Model

PROMPT = prompt_of(40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_qwen2(tmp_path_factory.mktemp("loading") / "little-qwen")


def load(folder: Path, **settings: Any) -> Model:
    return load_model(ModelConfig(str(folder), **{"kv_memory": 2**20, "threads": 1, **settings}), 1)


def test_what_a_model_says_of_itself(folder: Path) -> None:
    model = load(folder, kv_memory=20_000)
    assert model.name == "little-qwen"
    assert (model.spec.family, model.spec.vocab_size) == ("qwen2", tiny.VOCAB_SIZE)
    assert (model.ops.name, model.ops.exact) == ("native", True)
    # K and V of 2 layers, 2 heads of 16, float16.
    assert model.kv_bytes_per_token == 2 * 2 * 2 * 16 * 2
    assert model.pages == 20_000 // 256
    assert (model.kv_memory.nbytes, model.kv_memory.reason) == (20_000, "as given")
    assert model.vocab is not None
    assert model.chat_template == tiny.CHATML
    assert model.notices == ()


def test_the_default_model_bears_its_short_name() -> None:
    assert load_model(ModelConfig(kv_memory=2**21), 1).name == "smollm2-135m"


def test_memory_defaults_to_a_share_with_a_reason(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sapwood.model.memory.free_memory", lambda: 2**23)
    model = load(folder, kv_memory=None)
    assert model.kv_memory.nbytes == 2**21
    assert "a quarter of" in model.kv_memory.reason
    assert model.pages == 2**21 // 256


def test_too_little_memory_names_what_is_needed(folder: Path) -> None:
    with pytest.raises(UsageError) as raised:
        load_model(ModelConfig(str(folder), kv_memory=10), 16)
    assert raised.value.message == (
        "KV memory of 10 bytes holds 0 tokens; at least 64 must fit, and one page of 16 tokens takes 4 KiB"
    )
    assert raised.value.hint == "give --kv-memory at least 16KiB"
    with pytest.raises(UsageError, match="holds 63 tokens"):
        load(folder, kv_memory=64 * 256 - 1)
    assert load(folder, kv_memory=64 * 256).pages == 64


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no model at"):
        load(tmp_path / "none")
    with pytest.raises(UsageError, match="no model is called 'smollm'") as raised:
        load_model(ModelConfig("smollm"), 1)
    assert "smollm2-135m" in str(raised.value)


def test_progress_ends_with_the_last_layer(folder: Path) -> None:
    told: list[str] = []
    load_model(ModelConfig(str(folder), kv_memory=2**20), 1, told.append)
    assert told[-1] == "packing weights: layer 2 of 2"


# ---- weight formats ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "format", "limit"),
    [("f32", "f32", 0.0), ("f16", "f16", 0.002), ("q8", "q8_0", 0.05), ("q4", "q4_1", 0.6)],
)
def test_weights_are_converted_at_load(
    weights: WeightFormat, format: Any, limit: float, folder: Path
) -> None:
    """As near as the format allows (root mean square, relative); and the bits of tensors converted one by one."""
    model = load(folder, weights=weights)
    checkpoint = load_checkpoint(folder)
    tensors = {
        name: tensor if tensor.rows == 1 else requantize(tensor, format)
        for name, tensor in checkpoint.tensors.items()
    }
    by_hand = Decoder(checkpoint.spec, tensors, NativeOps(1))
    found = all_logits(model.runner.decoder, PROMPT)
    assert found.tobytes() == all_logits(by_hand, PROMPT).tobytes()
    plain = all_logits(load(folder).runner.decoder, PROMPT)
    assert limit / 10 <= np.sqrt(np.mean((found - plain) ** 2) / np.mean(plain**2)) <= limit
    assert (limit == 0.0) == (found.tobytes() == plain.tobytes())


def test_a_format_that_the_file_has_changes_no_bit(folder: Path, tmp_path: Path) -> None:
    path = tiny.gguf_of(folder, tmp_path / "model.gguf", "Q8_0")
    plain = all_logits(load(path).runner.decoder, PROMPT)
    assert all_logits(load(path, weights="q8").runner.decoder, PROMPT).tobytes() == plain.tobytes()


@pytest.mark.parametrize("weights", ["q8", "q4"])
def test_rows_that_blocks_do_not_divide_stay_f16_with_a_notice(weights: WeightFormat, tmp_path: Path) -> None:
    """`down` has rows of 100 values; everything else is as wide as the model, 64."""
    folder = tiny.tiny_llama(tmp_path, intermediate_size=100)
    model = load(folder, weights=weights)
    assert model.notices == (
        f"2 tensors have rows that are no multiple of 32 and are kept as f16, not {weights}",
    )
    assert np.isfinite(all_logits(model.runner.decoder, PROMPT)).all()
    assert load(folder, weights="f16").notices == ()


# ---- fingerprints ------------------------------------------------------------------------------------------------


def test_a_fingerprint_is_the_same_for_the_same_model(folder: Path, tmp_path: Path) -> None:
    copy = tiny.tiny_qwen2(tmp_path / "elsewhere")
    fingerprint = load(folder).fingerprint
    assert load(copy).fingerprint == fingerprint
    assert load(folder, kv_memory=18_000, threads=2).fingerprint == fingerprint
    assert len(bytes.fromhex(fingerprint)) == 32


def test_a_fingerprint_differs_wherever_kv_would(folder: Path, tmp_path: Path) -> None:
    dtypes: tuple[KvDtype, ...] = ("f16", "bf16", "f32", "q8")
    formats: tuple[WeightFormat, ...] = ("auto", "f16", "q8", "q4")
    rope = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 2.0}
    others = (
        tiny.tiny_qwen2(tmp_path / "other weights", seed=1),
        tiny.tiny_qwen2(tmp_path / "other rope", rope_parameters=rope),
        tiny.tiny_qwen2(tmp_path / "other eps", rms_norm_eps=1e-4),
        tiny.tiny_qwen2(
            tmp_path / "a window", use_sliding_window=True, sliding_window=8, max_window_layers=0
        ),
    )
    found = [
        load(folder, kv_dtype=dtype, weights=weights).fingerprint for dtype in dtypes for weights in formats
    ]
    found += [load(other).fingerprint for other in others]
    assert len(set(found)) == len(dtypes) * len(formats) + len(others)


def test_a_fingerprint_tells_the_compute_where_it_matters(folder: Path) -> None:
    ways: tuple[Compute, ...] = ("auto", "f32")
    assert len({load(folder, compute=way, weights="q4").fingerprint for way in ways}) == 2
    assert len({load(folder, compute=way, weights="f16").fingerprint for way in ways}) == 1


# ---- ops ---------------------------------------------------------------------------------------------------------


def test_threads_default_to_the_cores_at_hand() -> None:
    ops, notices = choose_ops()
    assert isinstance(ops, NativeOps)
    assert ops.threads == loading.available_cores() >= 1
    assert notices == ()
    three, _ = choose_ops(3)
    assert isinstance(three, NativeOps)
    assert three.threads == 3


def test_a_cpu_without_the_features_runs_the_reference_ops_and_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = all_logits(load(folder).runner.decoder, PROMPT[:10])
    monkeypatch.setattr(loading, "missing_features", lambda: frozenset({"avx2", "fma"}))
    model = load(folder)
    assert model.notices == ("this CPU lacks avx2, fma: the reference ops run instead, and are very slow",)
    assert (model.ops.name, model.ops.exact) == ("reference", True)
    assert all_logits(model.runner.decoder, PROMPT[:10]).tobytes() == native.tobytes()


@pytest.mark.parametrize(
    ("flags", "missing"),
    [("fpu sse avx avx2 fma f16c", set()), ("fpu sse avx", {"avx2", "fma", "f16c"}), ("avx2 fma", {"f16c"})],
)
def test_features_are_read_from_cpuinfo(
    flags: str, missing: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\nmodel name\t: fma avx2\nflags\t\t: {flags}\n")
    assert missing_features(cpuinfo) == missing
    assert missing_features(tmp_path / "none") == set()


def test_other_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert missing_features() == set()
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert missing_features() == {"riscv64"}
    with pytest.raises(UsageError, match="riscv64"):
        NativeOps(1)
