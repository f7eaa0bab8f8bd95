"""The shape of a model from its `config.json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal

from sapwood.sim.decoder import COUNTED, Weight, head_dim_of, weights_of
from sapwood.sim.decoder_config import DecoderConfig
from sapwood.sim.model_shape import ModelShape, Stored, Window
from sapwood.sim.packing import WeightsName
from sapwood.sim.quantization import Quantization, quantization_named, quantization_of

KvName = Literal["f32", "f16", "bf16", "fp8", "int8", "q8"]

_KV_BYTES: Mapping[KvName, float] = MappingProxyType(
    {"f32": 4.0, "f16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0}
)
_KV_SCALE_BYTES = 4
"""q8, ours: a float32 for each token and head."""

_FASTER_IN_HARDWARE = frozenset({"fp8", "int8", "nvfp4", "fp4"})
"""Formats that some devices multiply as they are, at more than the peak of bf16."""

_PATTERNS: Mapping[str, int] = MappingProxyType({"gemma2": 2, "gemma3": 6, "gemma3_text": 6, "gpt_oss": 2})
"""Of so many layers the last looks at all tokens, where a config of that kind does not say it."""
_SWITCHED = frozenset({"qwen2", "qwen2_moe", "qwen3", "qwen3_moe"})
"""Kinds that have a window only where `use_sliding_window` says so, behind the first `max_window_layers`."""
_WHOLE_LAYERS = 28
"""Of theirs, where nothing is said."""


def shape_of_config(
    config: DecoderConfig, weights: WeightsName | int | None = None, kv: KvName = "bf16"
) -> ModelShape:
    """Counted to the parameter for Llama, Mistral, Phi-3, Qwen, Gemma, gpt-oss and DeepSeek (`COUNTED`).

    Args:
        weights: stored in another format than the config says; or bytes of all of them.
        kv: the type of keys and values.

    Raises:
        UsageError: it lacks what the count needs, or has what is not modelled.
    """
    every = list(weights_of(config))
    layers, heads = config.number("num_hidden_layers"), config.number("num_attention_heads")
    latent = config.says("kv_lora_rank") is not None
    size = _latent_head(config) if latent else head_dim_of(config)
    stored = _stored(config, every, weights)
    return ModelShape(
        name=config.name,
        parameters=sum(weight.parameters for weight in every),
        layers=layers,
        heads=heads,
        kv_heads=1 if latent else config.number("num_key_value_heads", heads),
        head_dim=size,
        kv_element_bytes=_kv_bytes(kv, _latent_numbers(config) if latent else size),
        active_parameters=_active(every),
        output_parameters=config.number("vocab_size") * config.number("hidden_size"),
        tied=config.tied,
        chosen_experts=next((each.chosen / each.copies for each in every if each.part == "experts"), 1.0),
        stored=stored,
        window=_window(config, layers),
        kv_numbers=_latent_numbers(config) if latent else None,
        pair_flops=_latent_flops(config, heads) if latent else None,
        notes=(
            *_kind_told(config),
            *_windows_told(config, layers),
            *_dtypes_told(config, weights),
            *_packing_told(stored, kv),
        ),
        context=config.number("max_position_embeddings", 0) or None,
    )


def _active(every: list[Weight]) -> int | None:
    if all(weight.copies == weight.chosen for weight in every):
        return None
    return sum(weight.active for weight in every)


def _stored(config: DecoderConfig, every: list[Weight], weights: WeightsName | int | None) -> Stored:
    if isinstance(weights, str):
        chosen: Quantization | None = quantization_named(weights, config)
    else:
        chosen = quantization_of(config)
    quantization = chosen or quantization_named("bf16", config)
    sizes = [(weight, quantization.bytes_of(weight)) for weight in every]
    total = sum(size for _, size in sizes)
    # Of bytes that were given, parts have the share that they have in the format of the config.
    scale = weights / total if isinstance(weights, int) else 1.0
    looked_up = 0.0 if config.tied else sum(size for weight, size in sizes if weight.part == "embedding")
    experts = sum(size for weight, size in sizes if weight.copies > 1)
    name = "as given" if isinstance(weights, int) else quantization.packing.name
    return Stored(name, total * scale, looked_up * scale, experts * scale)


def _kv_bytes(kv: KvName, numbers_a_scale: int) -> float:
    if kv == "q8":
        return (numbers_a_scale + _KV_SCALE_BYTES) / numbers_a_scale
    return _KV_BYTES[kv]


def _window(config: DecoderConfig, layers: int) -> Window | None:
    """Where layers are told to look at the last tokens alone, and sequences can be longer."""
    switch = config.text.get("use_sliding_window")
    if not (config.kind not in _SWITCHED if switch is None else switch):
        return None
    tokens, sliding = config.number("sliding_window", 0, least=0), _sliding(config, layers)
    longest = config.number("max_position_embeddings", 0)
    if not tokens or not sliding or 0 < longest <= tokens:
        return None
    return Window(sliding, tokens)


def _sliding(config: DecoderConfig, layers: int) -> int:
    """Layers that would have the window."""
    kinds = config.text.get("layer_types")
    if isinstance(kinds, list):
        return kinds.count("sliding_attention")
    if config.kind in _SWITCHED:
        return max(0, layers - config.number("max_window_layers", _WHOLE_LAYERS, least=0))
    key = "sliding_window_pattern" if config.text.get("sliding_window_pattern") else "_sliding_window_pattern"
    pattern = config.number(key, _PATTERNS.get(config.kind, 0), least=0)
    return layers - layers // pattern if pattern else layers


def _kind_told(config: DecoderConfig) -> Iterator[str]:
    if config.kind not in COUNTED:
        yield (
            f"the model_type of {config.name} is {config.kind or 'not said'}: it is counted as a gated decoder like "
            "Llama, which it may not be"
        )


def _windows_told(config: DecoderConfig, layers: int) -> Iterator[str]:
    if (window := _window(config, layers)) is not None:
        yield (
            f"{window.layers} of {layers} layers look at the last {window.tokens:,} tokens alone: times count that, "
            "room does not; an engine that frees what no layer looks at any more holds more"
        )


def _dtypes_told(config: DecoderConfig, weights: WeightsName | int | None) -> Iterator[str]:
    """Weights that are counted otherwise than they are stored."""
    packed = config.says("quantization_config")
    kind = config.says("dtype", "torch_dtype")
    if weights is not None:
        return
    if packed is not None and quantization_of(config) is None:
        how = packed.get("quant_method") if isinstance(packed, Mapping) else packed
        yield (
            f"weights are quantized ({how}), of which no size is known: they are counted as 2 bytes each; give "
            "--weights, a format or how much memory they take"
        )
    elif packed is None and kind not in (None, "bfloat16", "float16"):
        yield f"weights are stored as {kind} and counted as 2 bytes each, as engines load them"


def _packing_told(stored: Stored, kv: KvName) -> Iterator[str]:
    """What is not of two bytes."""
    if stored.format not in ("bf16", "f16"):
        same = ", and are multiplied at the peak of bf16 (--peak says another)" * (
            stored.format in _FASTER_IN_HARDWARE
        )
        yield f"weights are {stored.format}: they take {stored.all / 1e9:.3g} GB{same}"
    if kv not in ("bf16", "f16"):
        yield f"keys and values are {kv}"


def _latent_numbers(config: DecoderConfig) -> int:
    """Of a token in a layer: the latent vector, and the key's part that turns with the place."""
    return config.number("kv_lora_rank") + config.number("qk_rope_head_dim")


def _latent_flops(config: DecoderConfig, heads: int) -> int:
    """With the projections of keys and values absorbed into those of queries and outputs: scores, then sums."""
    return 2 * heads * (_latent_numbers(config) + config.number("kv_lora_rank"))


def _latent_head(config: DecoderConfig) -> int:
    """Mean of a key's and a value's size."""
    sizes: tuple[Any, ...] = ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    return sum(config.number(key) for key in sizes) // 2
