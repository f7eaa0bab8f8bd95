from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sapwood.errors import UsageError
from sapwood.sim.model_shape import KNOWN_MODELS, ModelShape, shape_named, shape_of_config

LLAMA_3_8B: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
    "max_position_embeddings": 8192,
}
SMOLLM2_135M: dict[str, Any] = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
    "max_position_embeddings": 8192,
}
MIXTRAL_8X7B = LLAMA_3_8B | {"vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2}
QWEN3_30B_A3B: dict[str, Any] = {
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_attention_heads": 32,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 151936,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "tie_word_embeddings": False,
}


def test_a_config_is_counted_to_the_parameter() -> None:
    assert shape_of_config(LLAMA_3_8B, "llama-3-8b") == KNOWN_MODELS["llama-3-8b"]
    assert shape_of_config(SMOLLM2_135M, "smollm2-135m") == KNOWN_MODELS["smollm2-135m"]


@pytest.mark.parametrize(
    ("config", "parameters", "active"),
    [(MIXTRAL_8X7B, 46_702_792_704, 12_879_425_536), (QWEN3_30B_A3B, 30_532_122_624, 3_353_000_000)],
)
def test_experts_are_counted_all_and_as_chosen(config: dict[str, Any], parameters: int, active: int) -> None:
    shape = shape_of_config(config, "moe")
    assert shape.parameters == pytest.approx(parameters, rel=1e-3)
    assert shape.active == pytest.approx(active, rel=1e-3)


def test_the_text_part_of_a_config_of_pictures_and_text_counts() -> None:
    assert shape_of_config({"text_config": LLAMA_3_8B}, "llama-3-8b") == KNOWN_MODELS["llama-3-8b"]


def test_heads_that_are_not_named_are_as_many_as_query_heads() -> None:
    config = {key: value for key, value in LLAMA_3_8B.items() if key != "num_key_value_heads"}
    assert shape_of_config(config, "x").kv_heads == 32


def test_the_context_is_read_and_known() -> None:
    assert shape_of_config(LLAMA_3_8B, "x").context == 8192
    assert shape_of_config({"text_config": LLAMA_3_8B}, "x").context == 8192
    without = {key: value for key, value in LLAMA_3_8B.items() if key != "max_position_embeddings"}
    assert shape_of_config(without, "x").context is None
    assert (shape_named("llama-3-8b").context, shape_named("llama-3.1-8b").context) == (8192, 131_072)
    assert all(shape.context for shape in KNOWN_MODELS.values())


def test_kv_of_a_token() -> None:
    assert shape_named("Llama-3-8B").kv_bytes_per_token == 131_072
    assert shape_named("smollm2-135m").kv_bytes_per_token == 23_040


def test_a_file_and_its_folder_give_the_shape(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SMOLLM2_135M))
    shape = shape_named(str(folder))
    assert shape == shape_named(str(folder / "config.json"))
    assert (shape.name, shape.parameters) == ("mine", 134_515_008)


def test_a_name_that_nobody_knows() -> None:
    with pytest.raises(UsageError, match="no model's shape is known as 'lama'") as caught:
        shape_named("lama")
    assert "smollm2-135m" in str(caught.value)


@pytest.mark.parametrize("text", ["{", "[]", '{"hidden_size": "wide"}'])
def test_a_file_that_is_no_config(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UsageError):
        shape_named(str(tmp_path))


def test_latent_attention_is_refused() -> None:
    with pytest.raises(UsageError, match="kv_lora_rank"):
        shape_of_config(LLAMA_3_8B | {"kv_lora_rank": 512}, "x")


WINDOWED = LLAMA_3_8B | {"sliding_window": 1024, "max_position_embeddings": 131072}


@pytest.mark.parametrize(
    ("config", "sliding"),
    [
        (WINDOWED, 32),
        (WINDOWED | {"layer_types": ["sliding_attention"] * 24 + ["full_attention"] * 8}, 24),
        (WINDOWED | {"sliding_window_pattern": 6}, 27),
        ({"text_config": WINDOWED}, 32),
        (WINDOWED | {"use_sliding_window": False}, 0),
        (WINDOWED | {"layer_types": ["full_attention"] * 32}, 0),
        (WINDOWED | {"sliding_window": None}, 0),
        (WINDOWED | {"max_position_embeddings": 1024}, 0),
    ],
)
def test_windows_are_told(config: dict[str, Any], sliding: int) -> None:
    notes = shape_of_config(config, "x").notes
    assert [note.split(" look")[0] for note in notes] == [f"{sliding} of 32 layers"] * bool(sliding)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"quantization_config": {"quant_method": "mxfp4"}}, "weights are quantized (mxfp4)"),
        ({"torch_dtype": "float32"}, "weights are stored as float32"),
        ({"dtype": "bfloat16"}, None),
        ({"torch_dtype": "float16"}, None),
    ],
)
def test_weights_of_other_than_two_bytes_are_told(config: dict[str, Any], said: str | None) -> None:
    notes = shape_of_config(LLAMA_3_8B | config, "x").notes
    assert [said is not None and note.startswith(said) for note in notes] == [True] * (said is not None)


@pytest.mark.parametrize(
    "wrong", [{"layers": 0}, {"context": 0}, {"weight_bytes": 0.0}, {"active_parameters": 11}]
)
def test_a_shape_that_cannot_be(wrong: dict[str, Any]) -> None:
    right: dict[str, Any] = {"parameters": 10, "layers": 1, "heads": 1, "kv_heads": 1, "head_dim": 1}
    ModelShape("x", **right)
    with pytest.raises(UsageError, match="no model has the shape"):
        ModelShape("x", **(right | wrong))
