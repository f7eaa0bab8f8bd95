"""Weights of decoders, counted beside what their makers published."""

from __future__ import annotations

from typing import Any

import pytest

from sapwood.errors import UsageError
from sapwood.sim.decoder import weights_of
from sapwood.sim.decoder_config import DecoderConfig
from sim.configs import DEEPSEEK_V3, GPT_OSS_120B, LLAMA_3_8B, MIXTRAL_8X7B


def modules(config: dict[str, Any]) -> dict[str, int]:
    return {weight.module: weight.parameters for weight in weights_of(DecoderConfig("x", config))}


def test_a_block_of_llama() -> None:
    found = modules(LLAMA_3_8B)
    block = {name: size for name, size in found.items() if name.startswith("layers.31.")}
    assert block == {
        "layers.31.norms": 2 * 4096,
        "layers.31.self_attn.q_proj": 4096 * 4096,
        "layers.31.self_attn.k_proj": 1024 * 4096,
        "layers.31.self_attn.v_proj": 1024 * 4096,
        "layers.31.self_attn.o_proj": 4096 * 4096,
        "layers.31.mlp.gate_proj": 14336 * 4096,
        "layers.31.mlp.up_proj": 14336 * 4096,
        "layers.31.mlp.down_proj": 4096 * 14336,
    }
    assert found["lm_head"] == found["embed_tokens"] == 128256 * 4096
    assert sum(found.values()) == 8_030_261_248


def test_a_table_that_is_tied_is_there_once() -> None:
    assert "lm_head" not in modules(LLAMA_3_8B | {"tie_word_embeddings": True})
    kind = {key: value for key, value in LLAMA_3_8B.items() if key != "tie_word_embeddings"}
    assert "lm_head" not in modules(kind | {"model_type": "gemma2"})
    assert "lm_head" in modules(kind)


def test_experts_biases_and_sinks_of_gpt_oss() -> None:
    found = modules(GPT_OSS_120B)
    assert found["layers.0.mlp.experts.0.gate_proj"] == 128 * 2880 * 2880
    assert found["layers.0.mlp.experts.biases"] == 128 * 3 * 2880
    assert found["layers.0.self_attn.biases"] == 64 * 64 + 2 * 8 * 64 + 2880
    assert found["layers.0.self_attn.sinks"] == 64
    assert sum(found.values()) == 116_829_156_672


def test_the_first_layers_of_deepseek_are_dense_and_one_expert_is_shared() -> None:
    found = modules(DEEPSEEK_V3)
    assert found["layers.2.mlp.gate_proj"] == 18432 * 7168
    assert found["layers.3.mlp.experts.0.up_proj"] == 256 * 2048 * 7168
    assert found["layers.3.mlp.shared_experts.up_proj"] == 2048 * 7168
    assert found["layers.0.self_attn.kv_b_proj"] == 128 * (128 + 128) * 512
    assert sum(found.values()) == 671_026_419_200


def test_queries_of_deepseek_without_a_rank() -> None:
    found = modules(DEEPSEEK_V3 | {"q_lora_rank": None})
    assert found["layers.0.self_attn.q_proj"] == 128 * 192 * 7168
    assert "layers.0.self_attn.q_a_proj" not in found


@pytest.mark.parametrize(
    ("more", "sparse"),
    [
        ({}, [0, 1, 2, 3]),
        ({"first_k_dense_replace": 0, "mlp_only_layers": []}, [0, 1, 2, 3]),
        ({"mlp_only_layers": [1]}, [0, 2, 3]),
        ({"decoder_sparse_step": 2}, [1, 3]),
    ],
)
def test_layers_that_have_experts(more: dict[str, Any], sparse: list[int]) -> None:
    found = modules(MIXTRAL_8X7B | {"num_hidden_layers": 4} | more)
    assert [layer for layer in range(4) if f"layers.{layer}.mlp.router" in found] == sparse
    assert [layer for layer in range(4) if f"layers.{layer}.mlp.gate_proj" not in found] == sparse


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"ssm_cfg": {"d_state": 16}}, "ssm_cfg"),
        ({"intermediate_size_mlp": 16384}, "intermediate_size_mlp"),
        ({"hybrid_override_pattern": "M-M*-"}, "hybrid_override_pattern"),
        ({"mamba_num_heads": 128}, "mamba_num_heads"),
        ({"ssm_state_size": 128}, "ssm_state_size"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "layers of linear_attention"),
    ],
)
def test_what_is_not_modelled_is_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=f"the config of x has {said}"):
        modules(LLAMA_3_8B | more)


@pytest.mark.parametrize("count", ["abc", [8], -8, True])
def test_experts_are_counted_in_whole_numbers(count: object) -> None:
    with pytest.raises(UsageError, match=r"the config of x has .* experts; a whole number was expected"):
        modules(MIXTRAL_8X7B | {"num_local_experts": count})


def test_shared_experts_may_be_none() -> None:
    without = {"n_shared_experts": 0, "shared_expert_intermediate_size": None}
    assert not any("shared" in name for name in modules(DEEPSEEK_V3 | without))


@pytest.mark.parametrize(
    "wrong",
    [
        *({"first_k_dense_replace": value} for value in ("1", -1, 1.5, [1])),
        *({"n_shared_experts": value} for value in ("a", [1], -1, 1.9, True)),
        *({"shared_expert_intermediate_size": value} for value in ("a", -1, 1.9)),
        *({"mlp_only_layers": value} for value in (3, "01", {"0": 1}, [1.0], [True], [[1]])),
    ],
)
def test_where_experts_are_is_told_in_whole_numbers(wrong: dict[str, Any]) -> None:
    [key] = wrong
    with pytest.raises(UsageError, match=f"the config of x has {key} = .* was expected"):
        modules(DEEPSEEK_V3 | wrong)
