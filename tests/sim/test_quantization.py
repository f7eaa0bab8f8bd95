"""What is quantized of a Llama 3 8B, by the configs of the tools that do it."""

from __future__ import annotations

from typing import Any

import pytest

from sapwood.errors import UsageError
from sapwood.sim.decoder import weights_of
from sapwood.sim.decoder_config import DecoderConfig
from sapwood.sim.packing import PACKINGS
from sapwood.sim.quantization import Quantization, quantization_named, quantization_of
from sim.configs import LLAMA_3_8B, SMOLLM2_135M

TABLES = 2 * 128256 * 4096
NORMS = (2 * 32 + 1) * 4096
ATTENTION = 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096)
MLPS = 32 * 3 * 14336 * 4096
ROWS = 32 * (2 * 4096 + 2 * 1024 + 2 * 14336 + 4096)
KEPT = 2 * (TABLES + NORMS)
COMPRESSED = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}


def compressed(weights: dict[str, Any], ignore: tuple[str, ...] = ("lm_head",)) -> dict[str, Any]:
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {"quant_method": "compressed-tensors", "config_groups": groups, "ignore": list(ignore)}


def config_of(packed: Any) -> DecoderConfig:
    return DecoderConfig("x", LLAMA_3_8B | {"quantization_config": packed})


def total(quantization: Quantization | None, config: DecoderConfig) -> float:
    assert quantization is not None
    return sum(quantization.bytes_of(weight) for weight in weights_of(config))


@pytest.mark.parametrize(
    ("packed", "expected"),
    [
        ({"quant_method": "fp8"}, KEPT + ATTENTION + MLPS + 4 * ROWS),
        (
            {"quant_method": "fp8", "weight_block_size": [128, 128]},
            KEPT + (ATTENTION + MLPS) * (1 + 4 / 128**2),
        ),
        (
            {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
            KEPT + (ATTENTION + MLPS) * (4 + 20 / 128) / 8,
        ),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, KEPT + ATTENTION + MLPS + 3 * ROWS),
        (
            {"quant_method": "bitsandbytes", "load_in_8bit": True},
            KEPT + ATTENTION + MLPS + 4 * ROWS,
        ),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True},
            KEPT + (ATTENTION + MLPS) * (4 + 32 / 64) / 8,
        ),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True},
            KEPT + (ATTENTION + MLPS) * (4 + (8 + 32 / 256) / 64) / 8,
        ),
        (compressed(COMPRESSED), KEPT + (ATTENTION + MLPS) * (4 + 16 / 128) / 8),
        (
            compressed({"num_bits": 8, "type": "float", "strategy": "channel"}),
            KEPT + ATTENTION + MLPS + 2 * ROWS,
        ),
        (
            compressed({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}),
            KEPT + (ATTENTION + MLPS) * (4 + 8 / 16) / 8,
        ),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, KEPT + (ATTENTION + MLPS) * 4.5 / 8),
        (None, KEPT + 2 * (ATTENTION + MLPS)),
    ],
)
def test_bytes_by_config(packed: Any, expected: float) -> None:
    config = config_of(packed)
    assert total(quantization_of(config), config) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("kept", "attention_kept"),
    [
        (["model.layers.*.self_attn"], True),
        (["self_attn"], True),
        (["re:.*self_attn.*"], True),
        ([f"model.layers.{layer}.self_attn" for layer in range(32)], True),
        ([f"language_model.model.layers.{layer}.self_attn" for layer in range(32)], True),
        (["model.layers.*.cross_attn", "visual.layers.*.self_attn", "attn"], False),
        ([], False),
    ],
)
def test_modules_that_are_kept(kept: list[str], attention_kept: bool) -> None:
    config = config_of({"quant_method": "mxfp4", "modules_to_not_convert": kept})
    converted = MLPS if attention_kept else MLPS + ATTENTION
    expected = KEPT + 2 * (ATTENTION + MLPS - converted) + converted * 17 / 32
    assert total(quantization_of(config), config) == expected


def test_the_output_layer_is_converted_where_nobody_keeps_it() -> None:
    every, kept = (
        config_of(compressed({"num_bits": 8, "strategy": "tensor"}, ignore)) for ignore in ((), ("lm_head",))
    )
    table = 128256 * 4096
    assert total(quantization_of(kept), kept) - total(quantization_of(every), every) == table - 4


def test_a_method_that_is_not_known_has_no_size() -> None:
    assert quantization_of(config_of({"quant_method": "aqlm"})) is None


@pytest.mark.parametrize(
    "packed",
    [
        compressed({"num_bits": "many"}),
        *(compressed({"num_bits": bits}) for bits in (0, -4, 4.5, True, 10**400)),
        *(compressed({"num_bits": 4, "group_size": size}) for size in (0, -2, "128")),
        *(
            compressed({"num_bits": 8, "strategy": "block", "block_structure": block})
            for block in (None, [128], [0, 128], [128, -1])
        ),
        {"quant_method": "compressed-tensors", "config_groups": [1]},
        *({"quant_method": "awq", "bits": bits} for bits in ("x", 0, None)),
        *({"quant_method": "gptq", "group_size": size} for size in (0, "x", [128])),
        *(
            {"quant_method": "fp8", "weight_block_size": block}
            for block in ([128], [0, 0], [1, 2, 3], 128, "12")
        ),
        {"quant_method": "fp8", "ignored_layers": ["re:*lm_head"]},
        {"quant_method": "fp8", "ignored_layers": [5]},
        {"quant_method": "fp8", "modules_to_not_convert": 5},
        {"quant_method": "fp8", "modules_to_not_convert": {"lm_head": 1}},
    ],
)
def test_a_form_that_is_not_known_is_told(packed: Any) -> None:
    with pytest.raises(UsageError, match="quantization_config of x"):
        quantization_of(config_of(packed))


@pytest.mark.parametrize("kept", ["re:*x", 5])
def test_names_that_are_none_are_told_where_the_format_is_given_too(kept: Any) -> None:
    config = config_of({"quant_method": "fp8", "ignore": kept})
    with pytest.raises(UsageError, match="quantization_config of x"):
        quantization_named("mxfp4", config)


@pytest.mark.parametrize("kept", ["self_attn", "re:.*self_attn"])
def test_one_name_need_not_be_in_a_list(kept: str) -> None:
    config = config_of({"quant_method": "mxfp4", "modules_to_not_convert": kept})
    assert total(quantization_of(config), config) == KEPT + 2 * ATTENTION + MLPS * 17 / 32


def test_a_format_by_name_keeps_tables_or_not() -> None:
    config = config_of(None)
    assert total(quantization_named("mxfp4", config), config) == KEPT + (ATTENTION + MLPS) * 17 / 32
    assert total(quantization_named("f32", config), config) == 4 * 8_030_261_248
    of_ours = (TABLES + ATTENTION + MLPS) * 34 / 32 + 2 * NORMS
    assert total(quantization_named("q8", config), config) == of_ours


def test_a_format_by_name_keeps_what_the_config_keeps() -> None:
    config = config_of({"quant_method": "fp8", "modules_to_not_convert": ["self_attn"]})
    expected = KEPT + 2 * ATTENTION + MLPS * 17 / 32
    assert total(quantization_named("mxfp4", config), config) == expected


def test_a_tied_table_stays_as_the_embedding_is() -> None:
    config = DecoderConfig("x", SMOLLM2_135M | {"quantization_config": compressed(COMPRESSED, ())})
    found = quantization_of(config)
    assert found is not None
    assert found.packing == PACKINGS["int4"].__class__("int4", 4, 16, 128)
    [table] = [weight for weight in weights_of(config) if weight.part == "embedding"]
    assert found.bytes_of(table) == 2 * 49152 * 576
