"""Specs and rope frequencies, judged by transformers' own configs and formulas."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sapwood.errors import ModelError
from sapwood.model.facts import Facts
from sapwood.model.families import FAMILIES
from sapwood.model.hf_config import spec_from_config
from sapwood.model.spec import Extent, ModelSpec, RopeSpec

BASE: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
    "eos_token_id": 2,
}
NOTHING = Facts("generation_config.json", {})

SCALINGS: list[dict[str, Any]] = [
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 3.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512},
    {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 256, "attention_factor": 0.7},
    {
        "rope_type": "yarn",
        "factor": 8.0,
        "original_max_position_embeddings": 256,
        "beta_fast": 16,
        "beta_slow": 2,
    },
    {
        "rope_type": "yarn",
        "factor": 40.0,
        "original_max_position_embeddings": 64,
        "mscale": 1.0,
        "mscale_all_dim": 0.7,
    },
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512, "truncate": False},
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512,
    },
]


def spec(**changes: Any) -> ModelSpec:
    return spec_from_config(Facts("config.json", {**BASE, **changes}), NOTHING)


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda scaling: str(scaling["rope_type"]))
@pytest.mark.parametrize("head_dim", [16, 64, 128])
@pytest.mark.parametrize("theta", [10_000.0, 1_000_000.0])
def test_frequencies_are_those_of_transformers(scaling: dict[str, Any], head_dim: int, theta: float) -> None:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    values = {**BASE, "head_dim": head_dim, "rope_parameters": {"rope_theta": theta, **scaling}}
    ours = spec(**values).rope.frequencies()
    config = LlamaConfig(**{key: value for key, value in values.items() if key != "rope_theta"})
    length = int(scaling["factor"] * BASE["max_position_embeddings"])
    theirs, scale = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, device="cpu", seq_len=length)
    np.testing.assert_allclose(ours.inverse, theirs.numpy(), rtol=2e-6)
    assert ours.attention_scale == pytest.approx(scale, rel=1e-12)
    assert ours.inverse.dtype == np.float64


def test_both_spellings_of_rope_scaling_are_read_alike() -> None:
    new = spec(rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5})
    old = spec(rope_scaling={"type": "linear", "factor": 2.0}, rope_theta=5e5)
    assert new.rope == old.rope == RopeSpec(5e5, 16, "linear", 2.0)


def test_plain_frequencies_and_divisors() -> None:
    plain = RopeSpec(10_000.0, 8).frequencies()
    np.testing.assert_allclose(plain.inverse, [1.0, 0.1, 0.01, 0.001], rtol=1e-12)
    assert plain.attention_scale == 1.0
    divided = RopeSpec(10_000.0, 8, freq_factors=(1.0, 2.0, 4.0, 8.0)).frequencies()
    np.testing.assert_allclose(divided.inverse * [1, 2, 4, 8], plain.inverse, rtol=1e-12)


def test_context_of_scaled_ropes() -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0}
    assert spec(rope_scaling={**yarn, "original_max_position_embeddings": 2048}).max_context == 8192
    assert spec(rope_scaling={**yarn, "original_max_position_embeddings": 512}).max_context == 2048
    assert spec(rope_scaling={"rope_type": "dynamic", "factor": 3.0}).max_context == 6144
    assert spec(rope_scaling={"rope_type": "linear", "factor": 3.0}).max_context == 2048


@pytest.mark.parametrize(
    ("family", "class_name", "options"),
    [
        ("llama", "Llama", {}),
        ("llama", "Llama", {"attention_bias": True}),
        ("mistral", "Mistral", {"sliding_window": 8}),
        ("mistral", "Mistral", {"sliding_window": None}),
        ("qwen2", "Qwen2", {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1}),
        ("qwen2", "Qwen2", {"sliding_window": 8}),
        ("qwen3", "Qwen3", {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 2}),
        (
            "qwen3",
            "Qwen3",
            {
                "sliding_window": 8,
                "use_sliding_window": True,
                "layer_types": ["full_attention", "sliding_attention", "full_attention"],
            },
        ),
        ("qwen3", "Qwen3", {"attention_bias": True}),
        (
            "gemma3_text",
            "Gemma3",
            {
                "sliding_window": 8,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            },
        ),
        ("gemma3_text", "Gemma3", {"sliding_window": 8, "sliding_window_pattern": 2}),
    ],
)
def test_extents_and_windows_are_those_of_transformers(
    family: str, class_name: str, options: dict[str, Any]
) -> None:
    import transformers

    values = {**BASE, "model_type": family, **options}
    config = getattr(transformers, f"{class_name.replace('Gemma3', 'Gemma3Text')}Config")(**values)
    ours = spec(**values)
    model = getattr(transformers, f"{class_name}ForCausalLM")(config)
    theirs = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
    extents = {FAMILIES[family].file_name(name, "hf"): extent for name, extent in ours.extents().items()}
    vectors = {name: Extent(1, shape[0]) for name, shape in theirs.items() if len(shape) == 1}
    matrices = {name: Extent(*shape) for name, shape in theirs.items() if len(shape) == 2}
    assert extents == {**vectors, **matrices}
    slides = [getattr(layer.self_attn, "sliding_window", None) is not None for layer in model.model.layers]
    if family == "mistral":
        slides = [config.sliding_window is not None] * 3
    assert list(ours.sliding_layers) == slides


_ABSENT = ("rms_norm_eps", "rope_theta")


@pytest.mark.parametrize(
    ("family", "class_name"),
    [
        ("llama", "Llama"),
        ("mistral", "Mistral"),
        ("qwen2", "Qwen2"),
        ("qwen3", "Qwen3"),
        ("gemma3_text", "Gemma3Text"),
        ("phi3", "Phi3"),
        ("qwen3_moe", "Qwen3Moe"),
        ("mixtral", "Mixtral"),
    ],
)
def test_what_a_config_leaves_out_is_what_transformers_takes(family: str, class_name: str) -> None:
    import transformers

    values = {key: value for key, value in BASE.items() if key not in _ABSENT}
    values = {**values, "model_type": family, "num_local_experts": 4, "num_experts_per_tok": 2}
    theirs = getattr(transformers, f"{class_name}Config")(**values, pad_token_id=0)
    ours = spec_from_config(Facts("config.json", values), NOTHING)
    rope = theirs.rope_parameters
    assert ours.rope.theta == rope.get("full_attention", rope)["rope_theta"]
    assert ours.norm_eps == theirs.rms_norm_eps
    scalar = getattr(theirs, "query_pre_attn_scalar", None)
    assert ours.attention_scale == (None if scalar is None else scalar**-0.5)
    assert ours.experts is not None
    assert ours.experts.normalised == getattr(theirs, "norm_topk_prob", family == "mixtral")


@pytest.mark.parametrize("kind", ["yarn", "su", "longrope"])
def test_each_name_of_longrope_means_it(kind: str) -> None:
    factors = {"long_factor": [2.0, 3.0] * 4, "short_factor": [1.0] * 8}
    scaling = {"type": kind, **factors}
    found = spec(model_type="phi3", rope_scaling=scaling, original_max_position_embeddings=512).rope
    assert (found.scaling, found.factor, found.freq_factors) == ("longrope", 4.0, (2.0, 3.0) * 4)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model_type": "gpt_bigcode"}, "gpt_bigcode"),
        ({"hidden_size": None}, "hidden_size"),
        ({"num_hidden_layers": "three"}, "num_hidden_layers"),
        ({"num_hidden_layers": 2**31 - 1}, "layers"),
        ({"num_attention_heads": 0}, "heads"),
        ({"num_key_value_heads": 3}, "kv_heads"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"rope_theta": 0.5}, "theta"),
        ({"head_dim": 15}, "dim"),
        ({"rope_scaling": {"rope_type": "mrope", "factor": 4.0}}, "mrope"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "short_factor"),
        ({"rope_scaling": {"rope_type": "su"}}, "'su' is not supported"),
        ({"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0, "x"]}}, r"short_factor\[1\]"),
        ({"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0, 2.0]}}, "freq_factors"),
        ({"num_experts": 4, "num_experts_per_tok": 5}, "4 experts"),
        ({"num_experts": 4}, "num_experts_per_tok"),
        ({"num_experts": 4, "num_experts_per_tok": 2, "mlp_only_layers": [1]}, "experts"),
        ({"model_type": "gemma3_text", "final_logit_softcapping": 30.0}, "final_logit_softcapping"),
        ({"model_type": "gemma3_text", "query_pre_attn_scalar": 0}, "query_pre_attn_scalar"),
        ({"model_type": "gemma3_text", "hidden_activation": "silu"}, "hidden_activation"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 4.0}}, "low_freq_factor"),
        ({"rope_scaling": [1]}, "rope_scaling"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"mlp_bias": True}, "mlp_bias"),
        (
            {
                "model_type": "gemma3_text",
                "rope_parameters": {
                    "full_attention": {"rope_type": "default"},
                    "sliding_attention": {"rope_type": "linear", "factor": 8.0},
                },
            },
            "sliding layers' rope is 'linear'",
        ),
        ({"no_rope_layers": [1, 0, 1]}, "no_rope_layers"),
        ({"layer_types": ["full_attention", "chunked_attention", "full_attention"]}, "chunked_attention"),
        (
            {"model_type": "mistral", "sliding_window": 8, "layer_types": ["linear_attention"] * 3},
            "linear_attention",
        ),
        ({"layer_types": "full_attention"}, "a list of texts"),
        ({"layer_types": ["sliding_attention"] * 3, "sliding_window": 8}, "llama has no window here"),
        (
            {"model_type": "qwen2", "layer_types": ["sliding_attention"] * 3, "sliding_window": 8},
            "qwen2 has no window here",
        ),
        (
            {"model_type": "mistral", "layer_types": ["sliding_attention"] * 2, "sliding_window": 8},
            "sliding_layers",
        ),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
        ({"eos_token_id": [2, "x"]}, "eos_token_id"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings"),
    ],
)
def test_a_config_that_cannot_be_is_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelError, match=named):
        spec(**changes)


def test_layers_that_all_attend_fully_with_rope_may_be_listed() -> None:
    assert spec(layer_types=["full_attention"] * 3, no_rope_layers=[1, 1, 1]) == spec()


@pytest.mark.parametrize(
    ("on", "window", "slides"),
    [(True, 8, (True,) * 3), (False, None, (False,) * 3), (None, None, (False,) * 3)],
)
def test_every_layer_of_qwen3_moe_slides_if_its_window_is_switched_on(
    on: bool | None, window: int | None, slides: tuple[bool, ...]
) -> None:
    import transformers

    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    values = {**BASE, **experts, "model_type": "qwen3_moe", "sliding_window": 8, "max_window_layers": 2}
    values |= {} if on is None else {"use_sliding_window": on}
    ours = spec(**values)
    assert ours.sliding_window == window == transformers.Qwen3MoeConfig(**values).sliding_window
    assert ours.sliding_layers == slides


def test_end_tokens_of_both_files_are_taken_once() -> None:
    generation = Facts("generation_config.json", {"eos_token_id": [7, 2]})
    found = spec_from_config(Facts("config.json", {**BASE, "eos_token_id": 2}), generation)
    assert found.eos_token_ids == (7, 2)


def test_a_window_needs_a_flag_for_each_layer() -> None:
    with pytest.raises(ModelError, match="sliding_layers"):
        replace(spec(), sliding_layers=(True,))
    with pytest.raises(ModelError, match="sliding_layers"):
        replace(spec(), sliding_layers=(True, True, True))
