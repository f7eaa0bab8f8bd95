"""Whole checkpoints: both file kinds hold the same model, and what is missing or wrong is named."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from model import tiny
from sapwood.errors import ModelError
from sapwood.model.checkpoint import Checkpoint, load_checkpoint
from sapwood.model.gguf_convert import to_f32

MAKERS = [tiny.tiny_llama, tiny.tiny_mistral, tiny.tiny_qwen2, tiny.tiny_qwen3]
FUZZ = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def assert_same_weights(a: Checkpoint, b: Checkpoint) -> None:
    assert set(a.tensors) == set(b.tensors)
    for name in a.tensors:
        np.testing.assert_array_equal(to_f32(a.tensors[name]), to_f32(b.tensors[name]), err_msg=name)


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_safetensors_and_gguf_of_one_model_load_alike(make: Callable[..., Path], tmp_path: Path) -> None:
    folder = make(tmp_path / "m")
    a = load_checkpoint(folder)
    b = load_checkpoint(tiny.gguf_of(folder, tmp_path / "m.gguf"))
    assert_same_weights(a, b)
    assert a.spec.extents() == b.spec.extents()
    assert a.spec.sliding_layers == b.spec.sliding_layers
    assert (a.spec.rope, a.spec.eos_token_ids, a.spec.bos_token_id) == (b.spec.rope, (2,), 0)
    assert a.notices == b.notices == ()
    assert a.chat_template == b.chat_template == tiny.CHATML
    assert a.vocab is not None
    assert a.vocab.tokenizer_json == folder / "tokenizer.json"
    assert a.vocab.config["bos_token"] == "<|endoftext|>"
    assert b.vocab is not None
    assert b.vocab.gguf is not None
    assert b.vocab.gguf["tokenizer.ggml.pre"] == "gpt-2"


@pytest.mark.parametrize("format", ["Q8_0", "Q4_0", "Q4_1", "F16", "BF16"])
def test_rows_of_llama_files_are_put_back_in_every_format(format: str, llama: Path, tmp_path: Path) -> None:
    from gguf import GGMLQuantizationType, quants

    checkpoint = load_checkpoint(tiny.gguf_of(llama, tmp_path / "m.gguf", format))
    stored = load_file(llama / "model.safetensors")
    kind = GGMLQuantizationType[format]
    for part in ("q", "k", "v"):
        weight = stored[f"model.layers.1.self_attn.{part}_proj.weight"]
        tensor = checkpoint.tensors[f"layers.1.{part}"]
        assert tensor.format == format.lower()
        expected = quants.dequantize(quants.quantize(weight, kind), kind)
        np.testing.assert_allclose(to_f32(tensor), expected, rtol=1e-6, atol=1e-7)


def test_biases_of_llama_files_are_put_back(tmp_path: Path) -> None:
    folder = tiny.tiny_llama(tmp_path / "m", attention_bias=True)
    gguf = load_checkpoint(tiny.gguf_of(folder, tmp_path / "m.gguf"))
    assert gguf.spec.qkv_bias
    assert gguf.spec.o_bias
    assert_same_weights(load_checkpoint(folder), gguf)


def test_frequency_divisors_of_a_gguf_file_reach_the_rope(llama: Path, tmp_path: Path) -> None:
    from gguf import GGUFWriter

    added: list[Any] = []
    original = GGUFWriter.write_header_to_file
    divisors = np.arange(1, 9, dtype=np.float32)

    class Writer(GGUFWriter):  # type: ignore[misc]
        def write_header_to_file(self, path: Path | None = None) -> None:
            added.append(self.add_tensor("rope_freqs.weight", divisors))
            original(self, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gguf.GGUFWriter", Writer)
        path = tiny.gguf_of(llama, tmp_path / "m.gguf")
    checkpoint = load_checkpoint(path)
    assert added
    assert checkpoint.spec.rope.freq_factors == tuple(range(1, 9))
    assert checkpoint.notices == ()


def test_shards_load_as_one_file_does(llama: Path, tmp_path: Path) -> None:
    folder = tiny.tiny_llama(tmp_path / "m", shard_size="60KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    sharded, whole = load_checkpoint(folder), load_checkpoint(llama)
    assert sharded.fingerprint == whole.fingerprint
    (folder / "model.safetensors.index.json").unlink()
    assert load_checkpoint(folder).fingerprint == whole.fingerprint


def test_bfloat16_weights_are_mapped_as_they_are(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(tiny.tiny_qwen2(tmp_path / "m", dtype="bfloat16"))
    assert {tensor.format for tensor in checkpoint.tensors.values()} == {"bf16"}


def test_the_fingerprint_tells_weights_apart(llama: Path, tmp_path: Path) -> None:
    first = load_checkpoint(llama).fingerprint
    assert load_checkpoint(llama).fingerprint == first
    assert len(first) == 64
    weights = load_file(llama / "model.safetensors")
    weights["model.norm.weight"][3] = np.nextafter(weights["model.norm.weight"][3], np.float32(9))
    folder = tmp_path / "other"
    folder.mkdir()
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text((llama / "config.json").read_text(encoding="utf-8"), encoding="utf-8")
    assert load_checkpoint(folder).fingerprint != first
    theta = tiny.tiny_llama(
        tmp_path / "theta", rope_parameters={"rope_type": "default", "rope_theta": 20_000.0}
    )
    assert load_checkpoint(theta).fingerprint != first


def test_converted_tensors_are_announced(llama: Path, tmp_path: Path) -> None:
    checkpoint = load_checkpoint(tiny.gguf_of(llama, tmp_path / "m.gguf", "Q5_0"))
    assert checkpoint.notices == ("Q5_0 converted to q8_0 for 16 tensors",)


def test_end_of_turn_tokens_end_an_answer(llama: Path, tmp_path: Path) -> None:
    path = tiny.gguf_of(llama, tmp_path / "m.gguf", tokenizer__ggml__eos_token_id=0)
    assert load_checkpoint(path).spec.eos_token_ids == (0, 2)


@pytest.mark.parametrize(
    ("facts", "named"),
    [
        ({"llama__block_count": 3}, r"blk\.2\.attn_norm\.weight"),
        ({"llama__block_count": None}, r"llama\.block_count"),
        ({"llama__feed_forward_length": 64}, r"blk\.0\.ffn_gate\.weight.*96 × 64"),
        ({"llama__embedding_length": "x"}, r"llama\.embedding_length"),
        ({"llama__expert_count": 8}, "expert_used_count"),
        ({"llama__expert_count": 8, "llama__expert_used_count": 9}, "8 experts"),
        ({"llama__expert_count": 8, "llama__expert_used_count": 2}, r"blk\.0\.ffn_gate_inp"),
        ({"llama__rope__scaling__type": "longrope"}, "longrope"),
        ({"llama__attention__value_length": 8}, "value_length"),
        ({"general__architecture": "mamba"}, "mamba"),
    ],
)
def test_gguf_facts_that_do_not_fit_are_named(
    facts: dict[str, Any], named: str, llama: Path, tmp_path: Path
) -> None:
    arch = facts.pop("general__architecture", None)
    path = tiny.gguf_of(llama, tmp_path / "m.gguf", **facts)
    if arch is not None:
        path.write_bytes(path.read_bytes().replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0mamba", 1))
    with pytest.raises(ModelError, match=named):
        load_checkpoint(path)


def test_a_linear_and_a_yarn_rope_in_gguf(llama: Path, tmp_path: Path) -> None:
    linear = tiny.gguf_of(
        llama, tmp_path / "a.gguf", llama__rope__scaling__type="linear", llama__rope__scaling__factor=4.0
    )
    assert load_checkpoint(linear).spec.rope.scaling == "linear"
    yarn = tiny.gguf_of(
        llama,
        tmp_path / "b.gguf",
        llama__rope__scaling__type="yarn",
        llama__rope__scaling__factor=4.0,
        llama__rope__scaling__original_context_length=128,
    )
    rope = load_checkpoint(yarn).spec.rope
    assert (rope.scaling, rope.factor, rope.original_max_position) == ("yarn", 4.0, 128)
    assert rope.frequencies().attention_scale == pytest.approx(0.1 * np.log(4.0) + 1.0)


def copy_without(source: Path, target: Path, *left_out: str) -> Path:
    target.mkdir()
    for path in source.iterdir():
        if path.name not in left_out:
            (target / path.name).write_bytes(path.read_bytes())
    return target


def test_what_a_folder_lacks_is_named(llama: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json"):
        load_checkpoint(copy_without(llama, tmp_path / "a", "config.json"))
    with pytest.raises(ModelError, match=r"no \*\.safetensors"):
        load_checkpoint(copy_without(llama, tmp_path / "b", "model.safetensors"))
    bare = load_checkpoint(copy_without(llama, tmp_path / "c", "tokenizer.json", "tokenizer_config.json"))
    assert bare.vocab is None
    with pytest.raises(ModelError, match="no model at"):
        load_checkpoint(tmp_path / "nothing")


def test_a_missing_or_misshapen_tensor_is_named(llama: Path, tmp_path: Path) -> None:
    folder = copy_without(llama, tmp_path / "m", "model.safetensors")
    weights = load_file(llama / "model.safetensors")
    taken = weights.pop("model.layers.1.mlp.up_proj.weight")
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        load_checkpoint(folder)
    shaped = {**weights, "model.layers.1.mlp.up_proj.weight": np.ascontiguousarray(taken.T)}
    save_file(shaped, folder / "other.safetensors")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"up_proj\.weight' is 64 × 96.*96 × 64"):
        load_checkpoint(folder)


def test_unused_tensors_are_announced(llama: Path, tmp_path: Path) -> None:
    folder = copy_without(llama, tmp_path / "m", "model.safetensors")
    extra = {
        "model.vision.weight": np.zeros((2, 2), np.float32),
        "model.layers.0.self_attn.rotary_emb.inv_freq": np.zeros(4, np.float32),
    }
    save_file({**load_file(llama / "model.safetensors"), **extra}, folder / "model.safetensors")
    assert load_checkpoint(folder).notices == ("1 tensors are not used, such as 'model.vision.weight'",)


@pytest.mark.parametrize(
    "name",
    ["self_attn.q_proj.bias", "mlp.up_proj.bias", "self_attn.q_norm.weight", "mlp.shared_expert.gate.weight"],
)
def test_a_weight_of_a_layer_that_is_not_computed_is_refused(name: str, llama: Path, tmp_path: Path) -> None:
    folder = copy_without(llama, tmp_path / "m", "model.safetensors")
    stored = {**load_file(llama / "model.safetensors"), f"model.layers.1.{name}": np.ones(96, np.float32)}
    save_file(stored, folder / "model.safetensors")
    with pytest.raises(ModelError, match=rf"model\.layers\.1\.{name}' is not computed"):
        load_checkpoint(folder)


@pytest.mark.parametrize("name", ["blk.0.ffn_up.bias", "blk.1.attn_qkv.bias", "blk.7.attn_norm.weight"])
def test_a_weight_of_a_gguf_layer_that_is_not_computed_is_refused(
    name: str, llama: Path, tmp_path: Path
) -> None:
    path = tiny.gguf_of(llama, tmp_path / "m.gguf", extra={name: np.ones(96, np.float32)})
    with pytest.raises(ModelError, match=f"{name}' is not computed"):
        load_checkpoint(path)


def test_a_stored_rope_is_no_weight(llama: Path, tmp_path: Path) -> None:
    rope = {"blk.0.attn_rot_embd.weight": np.ones(8, np.float32)}
    assert load_checkpoint(tiny.gguf_of(llama, tmp_path / "m.gguf", extra=rope)).notices == ()


@pytest.mark.parametrize(
    ("key", "value"), [("expert_gating_func", 2), ("expert_shared_count", 1), ("expert_weights_scale", 2.5)]
)
def test_experts_that_are_not_computed_are_refused(
    key: str, value: float, llama: Path, tmp_path: Path
) -> None:
    said: dict[str, Any] = {f"llama__{key}": value}
    path = tiny.gguf_of(llama, tmp_path / "m.gguf", **said)
    with pytest.raises(ModelError, match=rf"llama\.{key}' is {value}"):
        load_checkpoint(path)


def test_experts_that_are_computed_may_be_spelled_out(llama: Path, tmp_path: Path) -> None:
    said: dict[str, Any] = {
        "llama__expert_gating_func": 1,
        "llama__expert_shared_count": 0,
        "llama__expert_weights_scale": 1.0,
    }
    plain, spelled = tiny.gguf_of(llama, tmp_path / "a"), tiny.gguf_of(llama, tmp_path / "b", **said)
    assert load_checkpoint(spelled).fingerprint == load_checkpoint(plain).fingerprint


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.pkl", "m.pth"])
def test_pickles_are_never_opened(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "config.json").write_text("{}", encoding="utf-8")
    (folder / name).write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    for path in (folder, folder / name):
        with pytest.raises(ModelError, match="pickled"):
            load_checkpoint(path)


def test_an_index_cannot_point_outside_its_folder(llama: Path, tmp_path: Path) -> None:
    folder = copy_without(llama, tmp_path / "m")
    index = {"weight_map": dict.fromkeys(load_file(llama / "model.safetensors"), "../model.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(ModelError, match="outside the folder"):
        load_checkpoint(folder)


def test_a_folder_with_one_gguf_is_that_model(llama_gguf: Path, tmp_path: Path) -> None:
    (tmp_path / "one.gguf").write_bytes(llama_gguf.read_bytes())
    assert load_checkpoint(tmp_path).fingerprint == load_checkpoint(llama_gguf).fingerprint
    (tmp_path / "two.gguf").write_bytes(llama_gguf.read_bytes())
    with pytest.raises(ModelError, match="2 GGUF files"):
        load_checkpoint(tmp_path)


def test_a_single_file_of_a_folder_points_to_the_folder(llama: Path) -> None:
    with pytest.raises(ModelError, match="give its folder"):
        load_checkpoint(llama / "model.safetensors")


def test_dynamic_ntk_is_announced_as_fixed(tmp_path: Path) -> None:
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10_000.0}
    checkpoint = load_checkpoint(tiny.tiny_llama(tmp_path / "m", rope_parameters=rope))
    assert checkpoint.spec.max_context == 1024
    assert "1024 tokens" in checkpoint.notices[0]


@FUZZ
@given(data=st.data())
def test_a_bent_config_gives_a_model_or_a_model_error(
    data: st.DataObject, llama: Path, tmp_path: Path
) -> None:
    config = json.loads((llama / "config.json").read_text(encoding="utf-8"))
    odd = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-5, 2**40),
        st.floats(),
        st.text(max_size=5),
        st.just([]),
        st.just({}),
    )
    for key in data.draw(st.lists(st.sampled_from(sorted(config)), max_size=3)):
        config[key] = data.draw(odd)
    folder = tmp_path / "m"
    if not folder.exists():
        copy_without(llama, folder)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with contextlib.suppress(ModelError):
        checkpoint = load_checkpoint(folder)
        assert set(checkpoint.tensors) == set(checkpoint.spec.extents())


def test_the_default_model_is_what_its_card_says() -> None:
    checkpoint = load_checkpoint(tiny.default_model())
    spec = checkpoint.spec
    assert (spec.layers, spec.hidden_size, spec.heads, spec.kv_heads, spec.head_dim) == (30, 576, 9, 3, 64)
    assert (spec.ffn_size, spec.vocab_size, spec.tied, spec.eos_token_ids) == (1536, 49152, True, (2,))
    assert checkpoint.tensors["embed"].format == "q8_0"
    assert checkpoint.tensors["layers.29.down"].format == "q4_1"
    assert checkpoint.notices == ()
