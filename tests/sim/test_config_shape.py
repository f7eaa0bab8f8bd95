from __future__ import annotations

from typing import Any

import pytest

from sapwood.errors import UsageError
from sapwood.sim.known_models import shape_named
from sapwood.sim.model_shape import Window
from sapwood.sim.packing import WeightsName
from sim.configs import (
    DEEPSEEK_V3,
    GEMMA_2_9B,
    GPT_OSS_120B,
    LLAMA_3_8B,
    MIXTRAL_8X7B,
    QWEN3_32B,
    SMOLLM2_135M,
    shape_of,
)

QWEN3_30B_A3B: dict[str, Any] = {
    "model_type": "qwen3_moe",
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
    assert shape_of(LLAMA_3_8B, "llama-3-8b") == shape_named("llama-3-8b")
    assert shape_of(LLAMA_3_8B).parameters == 8_030_261_248
    assert shape_of(SMOLLM2_135M).parameters == 134_515_008
    assert shape_of(GEMMA_2_9B).parameters == 9_241_705_984


@pytest.mark.parametrize("kind", ["gpt_neox", "starcoder2", "phi"])
def test_a_kind_that_is_not_known_is_told(kind: str) -> None:
    shape = shape_of(LLAMA_3_8B | {"model_type": kind})
    assert shape.notes == (
        f"the model_type of x is {kind}: it is counted as a gated decoder like Llama, which it may not be",
    )
    assert shape_of({"text_config": LLAMA_3_8B, "model_type": kind}).notes == ()
    unsaid = {key: value for key, value in LLAMA_3_8B.items() if key != "model_type"}
    assert [note.split(":")[0] for note in shape_of(unsaid).notes] == ["the model_type of x is not said"]


@pytest.mark.parametrize(
    ("config", "parameters", "active"),
    [
        (MIXTRAL_8X7B, 46_702_792_704, 12_879_925_248),
        (QWEN3_30B_A3B, 30_532_122_624, 3_353_032_704),
        (GPT_OSS_120B, 116_829_156_672, 5_711_982_912),
    ],
)
def test_experts_are_counted_all_and_as_chosen(config: dict[str, Any], parameters: int, active: int) -> None:
    shape = shape_of(config)
    assert (shape.parameters, shape.active) == (parameters, active)
    assert shape.chosen_experts == config["num_experts_per_tok"] / config.get(
        "num_experts", config.get("num_local_experts")
    )


def test_the_body_has_neither_the_embedding_nor_the_output_layer() -> None:
    assert shape_of(LLAMA_3_8B).body == 8_030_261_248 - 2 * 128256 * 4096
    assert shape_of(SMOLLM2_135M).body == 134_515_008 - 49152 * 576


def test_the_text_part_of_a_config_of_pictures_and_text_counts() -> None:
    assert shape_of({"text_config": LLAMA_3_8B}, "llama-3-8b") == shape_named("llama-3-8b")


def test_heads_that_are_not_named_are_as_many_as_query_heads() -> None:
    config = {key: value for key, value in LLAMA_3_8B.items() if key != "num_key_value_heads"}
    assert shape_of(config).kv_heads == 32


def test_the_context_is_read() -> None:
    assert shape_of(LLAMA_3_8B).context == 8192
    assert shape_of({"text_config": LLAMA_3_8B}).context == 8192
    without = {key: value for key, value in LLAMA_3_8B.items() if key != "max_position_embeddings"}
    assert shape_of(without).context is None


# ---- KV ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kv", "of_a_number"),
    [("f32", 4.0), ("f16", 2.0), ("bf16", 2.0), ("fp8", 1.0), ("int8", 1.0), ("q8", 1 + 4 / 128)],
)
def test_kv_by_type(kv: str, of_a_number: float) -> None:
    shape = shape_of(LLAMA_3_8B, kv=kv)
    assert shape.kv_bytes_per_token == 2 * 32 * 8 * 128 * of_a_number
    assert shape.notes == ((f"keys and values are {kv}",) if of_a_number != 2 else ())


def test_our_q8_is_what_the_server_allocates() -> None:
    """docs: 0.53 of f16 for SmolLM2, with heads of 64."""
    small = shape_of(SMOLLM2_135M, kv="q8").kv_bytes_per_token / shape_of(SMOLLM2_135M).kv_bytes_per_token
    assert small == 68 / 128


def test_latent_attention_keeps_one_vector_a_layer() -> None:
    shape = shape_of(DEEPSEEK_V3)
    assert shape.kv_bytes_per_token == 61 * (512 + 64) * 2 == 70_272
    assert (shape.kv_heads, shape.active) == (1, 37_552_297_472)
    assert shape.pair_flops == 2 * 128 * (512 + 64) + 2 * 128 * 512


# ---- weights ---------------------------------------------------------------------------------------------------


def test_gpt_oss_120b_in_mxfp4_fits_on_a_device_of_80_gb() -> None:
    """17 of 32 bytes for each number of an expert, 2 for all others; the checkpoint is 65.2 GB."""
    shape = shape_of(GPT_OSS_120B)
    experts = 36 * 128 * 3 * 2880 * 2880
    assert shape.bytes_of_weights == experts * 17 / 32 + 2 * (116_829_156_672 - experts)
    assert 65.2e9 < shape.bytes_of_weights < 65.3e9 < 0.9 * 80e9
    assert "weights are mxfp4: they take 65.2 GB" in shape.notes


def test_qwen3_32b_in_fp8_takes_half_but_for_its_tables() -> None:
    packed = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    shape = shape_of(QWEN3_32B | {"quantization_config": packed})
    tables = 2 * 151936 * 5120
    assert shape.bytes_of_weights == pytest.approx(32_762_123_264 + tables, rel=1e-3)
    assert shape.notes == (
        "weights are fp8: they take 34.3 GB, and are multiplied at the peak of bf16 (--peak says another)",
    )
    assert shape_of(QWEN3_32B).bytes_of_weights == 2 * 32_762_123_264


@pytest.mark.parametrize(
    ("weights", "of_a_number"), [("bf16", 2.0), ("f32", 4.0), ("fp8", 1.0), ("int4", 0.5 * 1.0390625)]
)
def test_weights_may_be_said_to_be_of_another_format(weights: WeightsName, of_a_number: float) -> None:
    shape = shape_of(LLAMA_3_8B, weights=weights)
    tables = 2 * 128256 * 4096 * (4 if weights == "f32" else 2)
    body = (8_030_261_248 - 2 * 128256 * 4096) * of_a_number
    assert shape.bytes_of_weights == pytest.approx(tables + body, rel=1e-3)
    assert shape.parameters == 8_030_261_248


def test_bytes_of_all_weights_may_be_said() -> None:
    shape = shape_of(LLAMA_3_8B, weights=5 * 10**9)
    assert shape.bytes_of_weights == 5e9
    share_of_table = 128256 * 4096 / 8_030_261_248
    assert shape.weights_read(1) == pytest.approx(5e9 * (1 - share_of_table))
    assert shape.notes == ("weights are as given: they take 5 GB",)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"quantization_config": {"quant_method": "aqlm"}}, "weights are quantized (aqlm), of which no size"),
        ({"torch_dtype": "float32"}, "weights are stored as float32"),
        ({"dtype": "bfloat16"}, None),
        ({"torch_dtype": "float16"}, None),
    ],
)
def test_weights_of_another_size_than_counted_are_told(config: dict[str, Any], said: str | None) -> None:
    shape = shape_of(LLAMA_3_8B | config)
    assert [said is not None and note.startswith(said) for note in shape.notes] == [True] * (said is not None)
    assert shape.bytes_of_weights == 2 * 8_030_261_248
    assert shape_of(LLAMA_3_8B | config, weights="bf16").notes == ()


# ---- windows ---------------------------------------------------------------------------------------------------

WINDOWED = LLAMA_3_8B | {"sliding_window": 1024, "max_position_embeddings": 131072}


@pytest.mark.parametrize(
    ("config", "sliding"),
    [
        (WINDOWED, 32),
        (WINDOWED | {"layer_types": ["sliding_attention"] * 24 + ["full_attention"] * 8}, 24),
        (WINDOWED | {"sliding_window_pattern": 6}, 27),
        (WINDOWED | {"sliding_window_pattern": 0}, 32),
        (WINDOWED | {"model_type": "gpt_oss"}, 16),
        (WINDOWED | {"model_type": "gpt_oss", "num_hidden_layers": 31}, 16),
        (WINDOWED | {"model_type": "gemma2"}, 16),
        (WINDOWED | {"model_type": "gemma3_text"}, 27),
        (WINDOWED | {"model_type": "gemma3_text", "_sliding_window_pattern": 4}, 24),
        (WINDOWED | {"model_type": "qwen2", "use_sliding_window": True}, 4),
        (WINDOWED | {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 20}, 12),
        (WINDOWED | {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 0}, 32),
        (WINDOWED | {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 70}, 0),
        (WINDOWED | {"model_type": "qwen3"}, 0),
        (WINDOWED | {"use_sliding_window": None}, 32),
        ({"text_config": WINDOWED}, 32),
        (WINDOWED | {"use_sliding_window": False}, 0),
        (WINDOWED | {"layer_types": ["full_attention"] * 32}, 0),
        (WINDOWED | {"sliding_window": None}, 0),
        (WINDOWED | {"sliding_window": 0}, 0),
        (WINDOWED | {"max_position_embeddings": 1024}, 0),
    ],
)
def test_windows_are_read_and_told(config: dict[str, Any], sliding: int) -> None:
    if config.get("model_type") == "gpt_oss":
        config = config | {"num_local_experts": 4, "num_experts_per_tok": 2}
    shape = shape_of(config)
    assert shape.window == (Window(sliding, 1024) if sliding else None)
    layers = shape.layers
    assert [note.split(" look")[0] for note in shape.notes] == [f"{sliding} of {layers} layers"] * bool(
        sliding
    )
    assert shape.kv_bytes_per_token == 4096 * layers


def test_half_of_the_layers_of_gemma_2_look_at_4096_tokens() -> None:
    assert shape_of(GEMMA_2_9B).window == Window(21, 4096)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"sliding_window": value} for value in (-1, True, "wide", 1.5, [4096])),
        {"sliding_window_pattern": -1},
        {"sliding_window_pattern": "six"},
        {"max_position_embeddings": "x"},
        {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": -2},
    ],
)
def test_a_window_is_told_in_whole_numbers(wrong: dict[str, Any]) -> None:
    [*_, key] = wrong
    with pytest.raises(UsageError, match=f"the config of x has {key} = .*; a whole number was expected"):
        shape_of(WINDOWED | wrong)


def test_more_layers_with_a_window_than_there_are_is_no_shape() -> None:
    with pytest.raises(UsageError, match="no model has the shape"):
        shape_of(WINDOWED | {"layer_types": ["sliding_attention"] * 33})


@pytest.mark.parametrize("wrong", [{"hidden_size": "wide"}, {"hidden_size": 0}, {"vocab_size": None}])
def test_what_the_count_needs_is_expected(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"the config of x has {next(iter(wrong))} = .*; a whole number was"):
        shape_of(LLAMA_3_8B | wrong)
