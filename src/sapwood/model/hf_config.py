"""From a transformers `config.json` to a ModelSpec."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING

from sapwood.errors import ModelError
from sapwood.model.families import FAMILIES, Family, sliding_layers
from sapwood.model.rope import RopeSpec, yarn_attention_scale
from sapwood.model.spec import Experts, ModelSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sapwood.model.facts import Facts
    from sapwood.model.ops import Activation


def spec_from_config(config: Facts, generation: Facts) -> ModelSpec:
    """Reads `config.json` (and `generation_config.json` for the end tokens).

    Raises ModelError for a family, option or rope scaling that is not computed here, or a missing key.
    """
    family = _family(config)
    _refuse_options(config, family)
    heads, layers = config.integer("num_attention_heads"), config.integer("num_hidden_layers")
    hidden = config.integer("hidden_size")
    head_dim = config.integer("head_dim", hidden // max(heads, 1))
    biased = family.biases == "attention_bias" and config.flag("attention_bias", False)
    window, sliding = _sliding(config, family, layers)
    rope, experts = _rope(config, family, head_dim), _experts(config, family)
    return ModelSpec(
        family=family.name,
        vocab_size=config.integer("vocab_size"),
        hidden_size=hidden,
        layers=layers,
        heads=heads,
        kv_heads=config.integer("num_key_value_heads", heads),
        head_dim=head_dim,
        ffn_size=_ffn_size(config, experts),
        max_context=_max_context(config, rope),
        norm_eps=config.number("rms_norm_eps", family.norm_eps),
        rope=rope,
        tied=config.flag("tie_word_embeddings", family.tied),
        qkv_bias=biased or family.biases == "qkv",
        o_bias=biased,
        qk_norm=family.qk_norm,
        post_norms=family.post_norms,
        activation=family.activation,
        embed_scale=math.sqrt(hidden) if family.scaled_embedding else 1.0,
        attention_scale=_attention_scale(config, family),
        experts=experts,
        local_rope=_local_rope(config, family, head_dim),
        sliding_window=window,
        sliding_layers=sliding,
        bos_token_id=config.integer("bos_token_id") if config.has("bos_token_id") else None,
        eos_token_ids=_end_tokens(config, generation),
    )


def _family(config: Facts) -> Family:
    name = config.text("model_type")
    if name not in FAMILIES:
        raise ModelError(
            f"{config.source}: the model family {name!r} is not supported; known are {', '.join(FAMILIES)}",
        )
    return FAMILIES[name]


_ACTIVATIONS: Mapping[str, Activation] = MappingProxyType(
    {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
)


def _refuse_options(config: Facts, family: Family) -> None:
    if config.has("quantization_config"):
        raise ModelError(
            f"{config.source}: quantised safetensors ('quantization_config') are not supported",
            hint="use the unquantised checkpoint or a GGUF file of the same model",
        )
    for key in ("hidden_act", "hidden_activation"):
        if config.has(key) and _ACTIVATIONS.get(config.text(key)) != family.activation:
            raise ModelError(
                f"{config.source}: {key!r} is {config.text(key)!r}; only {family.activation} is supported"
            )
    if config.flag("mlp_bias", False):
        raise ModelError(f"{config.source}: 'mlp_bias' is true; biases in the MLP are not supported")
    for key in ("attn_logit_softcapping", "final_logit_softcapping", "use_bidirectional_attention"):
        if config.values.get(key):
            raise ModelError(f"{config.source}: {key!r} is {config.values[key]}; it is not supported")
    if config.has("no_rope_layers") and not all(config.numbers("no_rope_layers")):
        raise ModelError(f"{config.source}: 'no_rope_layers' has layers without rope; they are not supported")
    if config.integer("decoder_sparse_step", 1) != 1 or config.values.get("mlp_only_layers"):
        raise ModelError(f"{config.source}: some layers have no experts; all or none are supported")


def _experts(config: Facts, family: Family) -> Experts | None:
    key = "num_local_experts" if config.has("num_local_experts") else "num_experts"
    if not config.integer(key, 0):
        return None
    normalised = config.flag("norm_topk_prob", family.experts_normalised)
    return Experts(config.integer(key), config.integer("num_experts_per_tok"), normalised)


def _attention_scale(config: Facts, family: Family) -> float | None:
    if family.query_scalar is None:
        return None
    scalar = config.number("query_pre_attn_scalar", family.query_scalar)
    if scalar <= 0:
        raise ModelError(f"{config.source}: 'query_pre_attn_scalar' is {scalar}; it must be above 0")
    return float(scalar**-0.5)


def _ffn_size(config: Facts, experts: Experts | None) -> int:
    """Mixtral calls an expert's size what it would call the MLP's."""
    if experts is not None and config.has("moe_intermediate_size"):
        return config.integer("moe_intermediate_size")
    return config.integer("intermediate_size")


def _sliding(config: Facts, family: Family, layers: int) -> tuple[int | None, tuple[bool, ...]]:
    none = (False,) * min(layers, 4096)
    listed = _listed_sliding(config)
    switched_off = family.sliding_switch and not config.flag("use_sliding_window", False)
    if family.sliding == "none" or switched_off or not config.has("sliding_window"):
        if listed is not None and any(listed):
            raise ModelError(
                f"{config.source}: 'layer_types' has sliding layers; {family.name} has no window here"
            )
        return None, none
    if listed is not None:
        flags = listed
    else:
        period = config.integer("sliding_window_pattern", family.sliding_period)
        first = config.integer("max_window_layers", 28)
        flags = sliding_layers(family, len(none), first=first, period=period)
    return (config.integer("sliding_window"), flags) if any(flags) else (None, flags)


def _listed_sliding(config: Facts) -> tuple[bool, ...] | None:
    """Per layer, whether it slides; None where there is no list. Raises ModelError for any other kind of layer."""
    if not config.has("layer_types"):
        return None
    kinds = config.texts("layer_types")
    for kind in kinds:
        if kind not in ("full_attention", "sliding_attention"):
            raise ModelError(
                f"{config.source}: 'layer_types' has {kind!r}; full_attention and sliding_attention are supported"
            )
    return tuple(kind == "sliding_attention" for kind in kinds)


def _rope_facts(config: Facts, kind: str = "full_attention") -> Facts:
    """The rope's own table; Gemma 3 has one for each kind of layer."""
    rope = config.table("rope_parameters") if config.has("rope_parameters") else config.table("rope_scaling")
    return rope.table(kind) if rope.has("full_attention") else rope


def _local_rope(config: Facts, family: Family, head_dim: int) -> RopeSpec | None:
    if family.local_theta is None:
        return None
    theta = config.number("rope_local_base_freq", family.local_theta)
    if config.table("rope_parameters").has("sliding_attention"):
        rope = _rope_facts(config, "sliding_attention")
        theta, kind = rope.number("rope_theta", theta), rope.text("rope_type", "default")
        if kind != "default":
            raise ModelError(
                f"{config.source}: the sliding layers' rope is {kind!r}; only default is supported"
            )
    return RopeSpec(theta, head_dim)


def _rope(config: Facts, family: Family, head_dim: int) -> RopeSpec:
    rope = _rope_facts(config)
    kind = rope.text("rope_type", rope.text("type", "default"))
    theta = rope.number("rope_theta", config.number("rope_theta", family.theta))
    partial = rope.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0))
    dim = int(head_dim * partial)
    if kind in ("yarn", "su") and rope.has("long_factor"):  # what the first Phi-3 files call it
        kind = "longrope"
    if kind == "default":
        return RopeSpec(theta, dim)
    readers = {
        "linear": _linear,
        "dynamic": _ntk,
        "ntk": _ntk,
        "yarn": _yarn,
        "llama3": _llama3,
        "longrope": _longrope,
    }
    if kind not in readers:
        raise ModelError(
            f"{config.source}: the rope scaling {kind!r} is not supported; known are {', '.join(readers)}"
        )
    return readers[kind](rope, config, theta, dim)


def _linear(rope: Facts, config: Facts, theta: float, dim: int) -> RopeSpec:  # noqa: ARG001
    return RopeSpec(theta, dim, "linear", rope.number("factor"))


def _ntk(rope: Facts, config: Facts, theta: float, dim: int) -> RopeSpec:
    context = config.integer("max_position_embeddings")
    return RopeSpec(theta, dim, "ntk", rope.number("factor"), original_max_position=context)


def _llama3(rope: Facts, config: Facts, theta: float, dim: int) -> RopeSpec:
    return RopeSpec(
        theta,
        dim,
        "llama3",
        rope.number("factor"),
        original_max_position=_original_context(rope, config),
        low_freq_factor=rope.number("low_freq_factor"),
        high_freq_factor=rope.number("high_freq_factor"),
    )


def _longrope(rope: Facts, config: Facts, theta: float, dim: int) -> RopeSpec:
    """LongRoPE changes its factors with the length of a text; stored keys allow one choice, by the longest."""
    longest, original = config.integer("max_position_embeddings"), _original_context(rope, config)
    factors = rope.numbers("long_factor" if longest > original else "short_factor")
    return RopeSpec(
        theta,
        dim,
        "longrope",
        rope.number("factor", longest / max(original, 1)),
        original_max_position=original,
        attention_factor=rope.number("attention_factor") if rope.has("attention_factor") else None,
        freq_factors=factors,
    )


def _yarn(rope: Facts, config: Facts, theta: float, dim: int) -> RopeSpec:
    original = _original_context(rope, config)
    factor = rope.number("factor", config.integer("max_position_embeddings", original) / max(original, 1))
    return RopeSpec(
        theta,
        dim,
        "yarn",
        factor,
        original_max_position=original,
        beta_fast=rope.number("beta_fast", 32.0) or 32.0,
        beta_slow=rope.number("beta_slow", 1.0) or 1.0,
        attention_factor=_yarn_attention(rope, factor),
        truncate=rope.flag("truncate", True),
    )


def _yarn_attention(rope: Facts, factor: float) -> float:
    if rope.has("attention_factor"):
        return rope.number("attention_factor")
    weight, all_dims = rope.number("mscale", 0.0), rope.number("mscale_all_dim", 0.0)
    if weight and all_dims:
        return yarn_attention_scale(factor, weight) / yarn_attention_scale(factor, all_dims)
    return yarn_attention_scale(factor)


def _original_context(rope: Facts, config: Facts) -> int:
    key = "original_max_position_embeddings"
    return rope.integer(key, config.integer(key, config.integer("max_position_embeddings")))


def _max_context(config: Facts, rope: RopeSpec) -> int:
    """NTK, and YaRN whose config still names the trained length, reach `factor` times as far."""
    named = config.integer("max_position_embeddings")
    if rope.scaling in ("ntk", "yarn") and (rope.original_max_position or 0) >= named:
        return int(named * rope.factor)
    return named


def _end_tokens(config: Facts, generation: Facts) -> tuple[int, ...]:
    found: dict[int, None] = {}
    for facts in (generation, config):
        found.update(dict.fromkeys(_ids(facts, "eos_token_id")))
    return tuple(found)


def _ids(facts: Facts, key: str) -> tuple[int, ...]:
    value: object = facts.values.get(key)
    listed: list[object] = value if isinstance(value, list) else [] if value is None else [value]
    named: Mapping[str, object] = {f"{key}[{i}]": token for i, token in enumerate(listed)}
    return tuple(type(facts)(facts.source, named).integer(name) for name in named)
