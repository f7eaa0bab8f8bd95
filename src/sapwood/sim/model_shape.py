"""What a model costs to read and to remember: the few numbers of its shape that matter for that."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sapwood.errors import UsageError


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Raises UsageError for what cannot be.

    Attributes:
        name: for people.
        parameters: of all weights.
        layers, heads, kv_heads, head_dim: of its attention; all layers alike, none with a window.
        notes: what of it is counted otherwise than it is, for people.
        kv_element_bytes: of one number in a page.
        weight_bytes: of one parameter.
        active_parameters: that one token is multiplied with; None where it is all (no experts).
        context: longest sequence that it reads; None where nobody said.
    """

    name: str
    parameters: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    kv_element_bytes: float = 2.0
    weight_bytes: float = 2.0
    active_parameters: int | None = None
    notes: tuple[str, ...] = ()
    context: int | None = None

    def __post_init__(self) -> None:
        whole = (
            *(self.parameters, self.layers, self.heads, self.kv_heads, self.head_dim, self.active),
            1 if self.context is None else self.context,
        )
        if (
            min(whole) < 1
            or min(self.kv_element_bytes, self.weight_bytes) <= 0
            or self.active > self.parameters
        ):
            raise UsageError(f"no model has the shape {self}")

    @property
    def active(self) -> int:
        """Parameters that one token is multiplied with."""
        return self.parameters if self.active_parameters is None else self.active_parameters

    @property
    def kv_bytes_per_token(self) -> float:
        """Keys and values of one token in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.kv_element_bytes

    @property
    def bytes_of_weights(self) -> float:
        return self.parameters * self.weight_bytes


KNOWN_MODELS: Mapping[str, ModelShape] = MappingProxyType(
    {
        each.name: each
        for each in (
            ModelShape("smollm2-135m", 134_515_008, 30, 9, 3, 64, context=8192),
            ModelShape("llama-3-8b", 8_030_261_248, 32, 32, 8, 128, context=8192),
            ModelShape("llama-3-70b", 70_553_706_496, 80, 64, 8, 128, context=8192),
            ModelShape("llama-3.1-8b", 8_030_261_248, 32, 32, 8, 128, context=131_072),
            ModelShape("llama-3.1-70b", 70_553_706_496, 80, 64, 8, 128, context=131_072),
            ModelShape("qwen2.5-7b", 7_615_616_512, 28, 28, 4, 128, context=32_768),
        )
    }
)


def shape_named(name: str) -> ModelShape:
    """Of a known name, or of a `config.json` as transformers writes it, or of the folder with one.

    Raises UsageError if it is neither, or if its config lacks or adds what the count needs.
    """
    if (found := KNOWN_MODELS.get(name.lower())) is not None:
        return found
    path = Path(name) / "config.json" if Path(name).is_dir() else Path(name)
    if not path.is_file():
        raise UsageError(
            f"no model's shape is known as {name!r}, and no config.json lies there",
            hint=f"known: {', '.join(KNOWN_MODELS)}; or give the path of a config.json",
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise UsageError(f"{path} holds no object")
    return shape_of_config(config, path.parent.name or path.stem)


def shape_of_config(config: Mapping[str, Any], name: str) -> ModelShape:
    """Counts parameters as those of a decoder with gated MLPs; norms of single heads and biases are left out.

    So it is exact for Llama and its like, and within 0.1 % for the others. Raises UsageError.
    """
    text = config.get("text_config", config)
    if foreign := [key for key in ("kv_lora_rank", "n_routed_experts", "ssm_cfg") if text.get(key)]:
        raise UsageError(f"the config of {name} has {foreign[0]}: a shape whose cost is not modelled")
    hidden, heads, layers = (
        _whole(text, key, name) for key in ("hidden_size", "num_attention_heads", "num_hidden_layers")
    )
    head_dim = _whole(text, "head_dim", name, hidden // heads)
    kv_heads = _whole(text, "num_key_value_heads", name, heads)
    everywhere = 2 * hidden * head_dim * (heads + kv_heads) + 2 * hidden
    tables = _whole(text, "vocab_size", name) * hidden * (1 if _tied(config, text) else 2) + hidden
    experts = _experts(text, name)
    mlp = 3 * hidden * experts.intermediate
    rest = tables + layers * (everywhere + experts.router * hidden)
    return ModelShape(
        name=name,
        parameters=rest + layers * mlp * experts.count,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        active_parameters=rest + layers * mlp * experts.chosen if experts.router else None,
        notes=(*_windows(text, layers), *_stored(config, text)),
        context=_whole(text, "max_position_embeddings", name, 0) or None,
    )


def _windows(text: Mapping[str, Any], layers: int) -> Iterator[str]:
    """Layers that look at the last tokens alone are counted like the others."""
    window, kinds = text.get("sliding_window"), text.get("layer_types")
    if not isinstance(window, int) or text.get("use_sliding_window") is False:
        return
    longest, pattern = text.get("max_position_embeddings"), text.get("sliding_window_pattern")
    sliding = layers
    if isinstance(kinds, list):
        sliding = kinds.count("sliding_attention")
    elif isinstance(pattern, int) and pattern > 0:
        sliding = layers - layers // pattern
    if sliding and not (isinstance(longest, int) and longest <= window):
        yield (
            f"{sliding} of {layers} layers look at the last {window:,} tokens alone, and are counted as if they kept "
            "all: less memory may do, and long prompts may take less time"
        )


def _stored(config: Mapping[str, Any], text: Mapping[str, Any]) -> Iterator[str]:
    """Weights of other than two bytes."""
    packed = config.get("quantization_config") or text.get("quantization_config")
    kind = next(
        (at.get(key) for at in (config, text) for key in ("dtype", "torch_dtype") if at.get(key)), None
    )
    if packed:
        how = packed.get("quant_method") if isinstance(packed, Mapping) else None
        yield f"weights are quantized ({how or packed}) and counted as 2 bytes each: more room is left than is told"
    elif kind not in (None, "bfloat16", "float16"):
        yield f"weights are stored as {kind} and counted as 2 bytes each"


@dataclass(frozen=True, slots=True)
class _Experts:
    """MLPs of a layer; `router` is the rows of what chooses among them, 0 where there is one."""

    intermediate: int
    count: int = 1
    chosen: int = 1
    router: int = 0


def _experts(text: Mapping[str, Any], name: str) -> _Experts:
    count = text.get("num_local_experts") or text.get("num_experts")
    if not count:
        return _Experts(_whole(text, "intermediate_size", name))
    size = "moe_intermediate_size" if text.get("moe_intermediate_size") else "intermediate_size"
    chosen = _whole(text, "num_experts_per_tok", name)
    return _Experts(_whole(text, size, name), int(count), chosen, int(count))


def _tied(config: Mapping[str, Any], text: Mapping[str, Any]) -> bool:
    kind = str(text.get("model_type", ""))
    return bool(text.get("tie_word_embeddings", config.get("tie_word_embeddings", kind.startswith("gemma"))))


def _whole(text: Mapping[str, Any], key: str, name: str, otherwise: int | None = None) -> int:
    value = text.get(key)
    if value is None and otherwise is not None:
        return otherwise
    if not isinstance(value, int) or value < 1:
        raise UsageError(f"the config of {name} has {key} = {value!r}; a whole number was expected")
    return value
