"""The weights of a decoder, from its config: which matrices and vectors there are, and how large."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from sapwood.errors import UsageError
from sapwood.sim.decoder_config import DecoderConfig

Part = Literal["embedding", "output", "linear", "experts", "router", "vector"]

_FOREIGN = (
    "ssm_cfg",
    "ssm_state_size",
    "mamba_d_state",
    "mamba_num_heads",
    "hybrid_override_pattern",
    "full_attention_interval",
    "intermediate_size_mlp",
    "layers_block_type",
)
"""Of recurrent layers, and of experts in some layers only: their cost is not modelled."""
COUNTED = frozenset(
    {
        "llama",
        "mistral",
        "mixtral",
        "phi3",
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_moe",
        "gemma",
        "gemma2",
        "gemma3",
        "gemma3_text",
        "gpt_oss",
        "deepseek_v2",
        "deepseek_v3",
        "kimi_k2",
    }
)
"""Kinds of which every weight is known here; any other is counted as if it were Llama."""
_KNOWN_LAYERS = frozenset({"full_attention", "sliding_attention"})
_BIASED = ("qwen2", "qwen2_moe")
"""Models whose queries, keys and values have a bias although their config says nothing of it."""
_NORMED_HEADS = ("qwen3", "qwen3_moe", "gemma3", "gemma3_text")


@dataclass(frozen=True, slots=True)
class Weight:
    """One weight, or `copies` alike, of which each token is multiplied with `chosen`.

    Attributes:
        module: as transformers calls it, from `layers` on.
    """

    module: str
    part: Part
    rows: int
    columns: int = 1
    copies: int = 1
    chosen: int = 1

    @property
    def parameters(self) -> int:
        return self.rows * self.columns * self.copies

    @property
    def active(self) -> int:
        return self.rows * self.columns * self.chosen


def weights_of(config: DecoderConfig) -> Iterator[Weight]:
    """All of them, those of pictures left out; gated, whatever the kind. Raises UsageError for what is not modelled."""
    _expect_decoder(config)
    hidden, vocabulary = config.number("hidden_size"), config.number("vocab_size")
    yield Weight("embed_tokens", "embedding", vocabulary, hidden)
    if not config.tied:
        yield Weight("lm_head", "output", vocabulary, hidden)
    yield Weight("norm", "vector", hidden)
    for layer in range(config.number("num_hidden_layers")):
        at = f"layers.{layer}."
        yield Weight(
            f"{at}norms", "vector", hidden * (4 if config.kind.startswith(("gemma2", "gemma3")) else 2)
        )
        yield from _latent(config, at) if config.says("kv_lora_rank") else _attention(config, at)
        yield from _experts(config, at) if _has_experts(config, layer) else _mlp(config, at)


def head_dim_of(config: DecoderConfig) -> int:
    return config.number("head_dim", config.number("hidden_size") // config.number("num_attention_heads"))


def _expect_decoder(config: DecoderConfig) -> None:
    for key in _FOREIGN:
        if config.text.get(key):
            raise UsageError(f"the config of {config.name} has {key}: a shape whose cost is not modelled")
    kinds = config.text.get("layer_types")
    if isinstance(kinds, list) and (other := sorted(set(map(str, kinds)) - _KNOWN_LAYERS)):
        raise UsageError(f"the config of {config.name} has layers of {other[0]}: their cost is not modelled")


def _attention(config: DecoderConfig, at: str) -> Iterator[Weight]:
    hidden, heads, size = (
        config.number("hidden_size"),
        config.number("num_attention_heads"),
        head_dim_of(config),
    )
    kv_heads = config.number("num_key_value_heads", heads)
    at += "self_attn."
    for name, rows in (("q_proj", heads), ("k_proj", kv_heads), ("v_proj", kv_heads)):
        yield Weight(f"{at}{name}", "linear", rows * size, hidden)
    yield Weight(f"{at}o_proj", "linear", hidden, heads * size)
    of_all = bool(config.text.get("attention_bias"))
    if of_all or config.kind in _BIASED:
        yield Weight(f"{at}biases", "vector", (heads + 2 * kv_heads) * size + hidden * of_all)
    if config.kind in _NORMED_HEADS:
        yield Weight(f"{at}norms", "vector", 2 * size)
    if config.kind == "gpt_oss":
        yield Weight(f"{at}sinks", "vector", heads)


def _latent(config: DecoderConfig, at: str) -> Iterator[Weight]:
    """Multi-head latent attention (DeepSeek-AI, "DeepSeek-V2", 2024)."""
    hidden, heads = config.number("hidden_size"), config.number("num_attention_heads")
    latent, rotary = config.number("kv_lora_rank"), config.number("qk_rope_head_dim")
    plain, value = config.number("qk_nope_head_dim"), config.number("v_head_dim")
    queries = heads * (plain + rotary)
    at += "self_attn."
    if config.text.get("q_lora_rank"):
        rank = config.number("q_lora_rank")
        yield Weight(f"{at}q_a_proj", "linear", rank, hidden)
        yield Weight(f"{at}q_a_layernorm", "vector", rank)
        yield Weight(f"{at}q_b_proj", "linear", queries, rank)
    else:
        yield Weight(f"{at}q_proj", "linear", queries, hidden)
    yield Weight(f"{at}kv_a_proj_with_mqa", "linear", latent + rotary, hidden)
    yield Weight(f"{at}kv_a_layernorm", "vector", latent)
    yield Weight(f"{at}kv_b_proj", "linear", heads * (plain + value), latent)
    yield Weight(f"{at}o_proj", "linear", hidden, heads * value)


def _experts_of_layer(config: DecoderConfig) -> int:
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    count = config.says(*names) or 0
    if type(count) is not int or count < 0:
        raise UsageError(f"the config of {config.name} has {count!r} experts; a whole number was expected")
    return count


def _has_experts(config: DecoderConfig, layer: int) -> bool:
    """In all layers, but for the first ones (DeepSeek), or for those named, or every so many (Qwen)."""
    every = config.number("decoder_sparse_step", 1)
    first = config.number("first_k_dense_replace", 0, least=0)
    dense = _layers_named(config, "mlp_only_layers")
    return (
        bool(_experts_of_layer(config)) and layer >= first and layer not in dense and not (layer + 1) % every
    )


def _layers_named(config: DecoderConfig, key: str) -> Sequence[int]:
    layers = config.text.get(key) or []
    if not isinstance(layers, list) or any(type(layer) is not int for layer in layers):
        raise UsageError(f"the config of {config.name} has {key} = {layers!r}; a list of layers was expected")
    return layers


def _mlp(config: DecoderConfig, at: str) -> Iterator[Weight]:
    size = config.number("intermediate_size")
    yield from _gated(f"{at}mlp.", "linear", config.number("hidden_size"), size)


def _experts(config: DecoderConfig, at: str) -> Iterator[Weight]:
    hidden, count, chosen = (
        config.number("hidden_size"),
        _experts_of_layer(config),
        config.number("num_experts_per_tok"),
    )
    size = config.number("moe_intermediate_size", config.number("intermediate_size", 1))
    yield Weight(f"{at}mlp.router", "router", count, hidden)
    yield from _gated(f"{at}mlp.experts.0.", "experts", hidden, size, count, chosen)
    if config.kind == "gpt_oss":
        yield Weight(f"{at}mlp.router.bias", "vector", count)
        yield Weight(f"{at}mlp.experts.biases", "vector", 2 * size + hidden, 1, count, chosen)
    if config.text.get("topk_method") == "noaux_tc":
        yield Weight(f"{at}mlp.gate.e_score_correction_bias", "vector", count)
    if shared := config.number("n_shared_experts", 0, least=0):
        yield from _gated(f"{at}mlp.shared_experts.", "linear", hidden, size * shared)
    if shared := config.number("shared_expert_intermediate_size", 0, least=0):
        yield from _gated(f"{at}mlp.shared_expert.", "linear", hidden, shared)
        yield Weight(f"{at}mlp.shared_expert_gate", "router", 1, hidden)


def _gated(at: str, part: Part, hidden: int, size: int, count: int = 1, chosen: int = 1) -> Iterator[Weight]:
    yield Weight(f"{at}gate_proj", part, size, hidden, count, chosen)
    yield Weight(f"{at}up_proj", part, size, hidden, count, chosen)
    yield Weight(f"{at}down_proj", part, hidden, size, count, chosen)
