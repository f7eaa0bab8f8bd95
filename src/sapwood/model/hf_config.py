"""From a transformers `config.json` to a ModelSpec."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sapwood.errors import ModelError
from sapwood.model.rope import RopeSpec, yarn_attention_scale
from sapwood.model.spec import FAMILIES, Family, ModelSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sapwood.model.facts import Facts


def spec_from_config(config: Facts, generation: Facts) -> ModelSpec:
    """Reads `config.json` (and `generation_config.json` for the end tokens).

    Raises ModelError for a family, option or rope scaling that is not computed here, or a missing key.
    """
    family = _family(config)
    _refuse_options(config)
    heads, layers = config.integer("num_attention_heads"), config.integer("num_hidden_layers")
    hidden = config.integer("hidden_size")
    head_dim = config.integer("head_dim", hidden // max(heads, 1))
    biased = family.biases == "attention_bias" and config.flag("attention_bias", False)
    window, sliding = _sliding(config, family, layers)
    rope = _rope(config, head_dim)
    return ModelSpec(
        family=family.name,
        vocab_size=config.integer("vocab_size"),
        hidden_size=hidden,
        layers=layers,
        heads=heads,
        kv_heads=config.integer("num_key_value_heads", heads),
        head_dim=head_dim,
        ffn_size=config.integer("intermediate_size"),
        max_context=_max_context(config, rope),
        norm_eps=config.number("rms_norm_eps", 1e-6),
        rope=rope,
        tied=config.flag("tie_word_embeddings", False),
        qkv_bias=biased or family.biases == "qkv",
        o_bias=biased,
        qk_norm=family.qk_norm,
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


def _refuse_options(config: Facts) -> None:
    if config.has("quantization_config"):
        raise ModelError(
            f"{config.source}: quantised safetensors ('quantization_config') are not supported",
            hint="use the unquantised checkpoint or a GGUF file of the same model",
        )
    activation = config.text("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise ModelError(f"{config.source}: 'hidden_act' is {activation!r}; only silu is supported")
    if config.flag("mlp_bias", False):
        raise ModelError(f"{config.source}: 'mlp_bias' is true; biases in the MLP are not supported")


def _sliding(config: Facts, family: Family, layers: int) -> tuple[int | None, tuple[bool, ...]]:
    none = (False,) * min(layers, 4096)
    switched_off = family.sliding_switch and not config.flag("use_sliding_window", False)
    if family.sliding == "none" or switched_off or not config.has("sliding_window"):
        return None, none
    listed = config.values.get("layer_types")
    if isinstance(listed, list):
        flags = tuple(kind == "sliding_attention" for kind in listed)
    elif family.sliding == "every":
        flags = (True,) * len(none)
    else:
        first = config.integer("max_window_layers", 28)
        flags = tuple(i >= first for i in range(len(none)))
    return (config.integer("sliding_window"), flags) if any(flags) else (None, flags)


def _rope(config: Facts, head_dim: int) -> RopeSpec:
    rope = config.table("rope_parameters") if config.has("rope_parameters") else config.table("rope_scaling")
    kind = rope.text("rope_type", rope.text("type", "default"))
    theta = rope.number("rope_theta", config.number("rope_theta", 10_000.0))
    partial = rope.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0))
    dim = int(head_dim * partial)
    if kind == "default":
        return RopeSpec(theta, dim)
    readers = {"linear": _linear, "dynamic": _ntk, "ntk": _ntk, "yarn": _yarn, "llama3": _llama3}
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
