"""What a decoder needs to know about a model, and families as rows of data: one decoder, a row a family."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from sapwood.errors import ModelError
from sapwood.model.rope import RopeFrequencies, RopeSpec

__all__ = ["FAMILIES", "Extent", "Family", "ModelSpec", "RopeFrequencies", "RopeSpec"]

_MOST_LAYERS = 4096


@dataclass(frozen=True, slots=True)
class Extent:
    """Rows (outputs) × columns (inputs) of a weight; a vector has one row."""

    rows: int
    cols: int


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A decoder-only transformer of the Llama shape. Raises ModelError for numbers that cannot be.

    Attributes:
        family: name of the row in FAMILIES.
        vocab_size: rows of the embedding, so the number of logits (may exceed the tokenizer's).
        hidden_size, layers, heads, kv_heads, head_dim, ffn_size: the extents.
        max_context: longest sequence in tokens.
        norm_eps: epsilon of every RMS norm.
        rope: rotary embedding, half-split order.
        tied: the logits reuse the embedding; there is no `lm_head`.
        qkv_bias, o_bias: linear layers of the attention that add a bias.
        qk_norm: RMS norm over head_dim on each head's query and key, before the rope.
        sliding_window: a token sees itself and at most this many − 1 before it, on the layers that slide.
        sliding_layers: per layer, whether it slides.
        bos_token_id: token that starts a text, if the model names one.
        eos_token_ids: tokens that end an answer.
    """

    family: str
    vocab_size: int
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_size: int
    max_context: int
    norm_eps: float
    rope: RopeSpec
    tied: bool
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: bool = False
    sliding_window: int | None = None
    sliding_layers: tuple[bool, ...] = ()
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    @property
    def attention_tokens(self) -> int | None:
        """Prefix length at which attention costs as much as all the rest of a token; None if every layer slides."""
        width = self.heads * self.head_dim
        linear = self.hidden_size * (2 * width + 2 * self.kv_heads * self.head_dim + 3 * self.ffn_size)
        growing = self.layers - sum(self.sliding_layers)
        return None if growing == 0 else self.layers * linear // (growing * 2 * width)

    def __post_init__(self) -> None:
        sizes = (
            "vocab_size",
            "hidden_size",
            "layers",
            "heads",
            "kv_heads",
            "head_dim",
            "ffn_size",
            "max_context",
        )
        for name in sizes:
            if getattr(self, name) < 1:
                raise ModelError(f"the model's {name} is {getattr(self, name)}; it must be at least 1")
        checks = (
            ("layers", self.layers <= _MOST_LAYERS, f"at most {_MOST_LAYERS}"),
            ("heads", self.heads % self.kv_heads == 0, f"a multiple of kv_heads ({self.kv_heads})"),
            ("head_dim", self.rope.dim <= self.head_dim, f"at least the {self.rope.dim} rotated values"),
            ("norm_eps", math.isfinite(self.norm_eps) and self.norm_eps > 0, "a finite number above 0"),
            ("sliding_window", (self.sliding_window or 1) >= 1, "at least 1"),
            (
                "sliding_layers",
                len(self.sliding_layers) == self.layers,
                f"one flag for each of {self.layers} layers",
            ),
            ("sliding_layers", self.sliding_window is not None or not any(self.sliding_layers), "all false"),
        )
        for name, valid, expected in checks:
            if not valid:
                raise ModelError(f"the model's {name} is {getattr(self, name)}; it must be {expected}")

    def extents(self) -> Mapping[str, Extent]:
        """Every tensor the decoder reads, by canonical name, with the extents it must have."""
        found = {
            "embed": Extent(self.vocab_size, self.hidden_size),
            "final_norm": Extent(1, self.hidden_size),
        }
        if not self.tied:
            found["lm_head"] = Extent(self.vocab_size, self.hidden_size)
        layer = self._layer_extents()
        for i in range(self.layers):
            found.update({f"layers.{i}.{name}": extent for name, extent in layer.items()})
        return MappingProxyType(found)

    def _layer_extents(self) -> dict[str, Extent]:
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        found = {
            "attn_norm": Extent(1, self.hidden_size),
            "q": Extent(queries, self.hidden_size),
            "k": Extent(keys, self.hidden_size),
            "v": Extent(keys, self.hidden_size),
            "o": Extent(self.hidden_size, queries),
            "mlp_norm": Extent(1, self.hidden_size),
            "gate": Extent(self.ffn_size, self.hidden_size),
            "up": Extent(self.ffn_size, self.hidden_size),
            "down": Extent(self.hidden_size, self.ffn_size),
        }
        if self.qkv_bias:
            found.update(q_bias=Extent(1, queries), k_bias=Extent(1, keys), v_bias=Extent(1, keys))
        if self.o_bias:
            found["o_bias"] = Extent(1, self.hidden_size)
        if self.qk_norm:
            found.update(q_norm=Extent(1, self.head_dim), k_norm=Extent(1, self.head_dim))
        return found


_HF_NAMES = MappingProxyType(
    {
        "embed": "model.embed_tokens.weight",
        "final_norm": "model.norm.weight",
        "lm_head": "lm_head.weight",
        "attn_norm": "model.layers.{i}.input_layernorm.weight",
        "q": "model.layers.{i}.self_attn.q_proj.weight",
        "k": "model.layers.{i}.self_attn.k_proj.weight",
        "v": "model.layers.{i}.self_attn.v_proj.weight",
        "o": "model.layers.{i}.self_attn.o_proj.weight",
        "q_bias": "model.layers.{i}.self_attn.q_proj.bias",
        "k_bias": "model.layers.{i}.self_attn.k_proj.bias",
        "v_bias": "model.layers.{i}.self_attn.v_proj.bias",
        "o_bias": "model.layers.{i}.self_attn.o_proj.bias",
        "q_norm": "model.layers.{i}.self_attn.q_norm.weight",
        "k_norm": "model.layers.{i}.self_attn.k_norm.weight",
        "mlp_norm": "model.layers.{i}.post_attention_layernorm.weight",
        "gate": "model.layers.{i}.mlp.gate_proj.weight",
        "up": "model.layers.{i}.mlp.up_proj.weight",
        "down": "model.layers.{i}.mlp.down_proj.weight",
    }
)

_GGUF_NAMES = MappingProxyType(
    {
        "embed": "token_embd.weight",
        "final_norm": "output_norm.weight",
        "lm_head": "output.weight",
        "attn_norm": "blk.{i}.attn_norm.weight",
        "q": "blk.{i}.attn_q.weight",
        "k": "blk.{i}.attn_k.weight",
        "v": "blk.{i}.attn_v.weight",
        "o": "blk.{i}.attn_output.weight",
        "q_bias": "blk.{i}.attn_q.bias",
        "k_bias": "blk.{i}.attn_k.bias",
        "v_bias": "blk.{i}.attn_v.bias",
        "o_bias": "blk.{i}.attn_output.bias",
        "q_norm": "blk.{i}.attn_q_norm.weight",
        "k_norm": "blk.{i}.attn_k_norm.weight",
        "mlp_norm": "blk.{i}.ffn_norm.weight",
        "gate": "blk.{i}.ffn_gate.weight",
        "up": "blk.{i}.ffn_up.weight",
        "down": "blk.{i}.ffn_down.weight",
    }
)


@dataclass(frozen=True, slots=True)
class Family:
    """A model family: how its files name and store what one decoder computes.

    Attributes:
        name: transformers' `model_type` and, but for `mistral`, the GGUF `general.architecture`.
        gguf_archs: GGUF architectures that are read as this family.
        gguf_permuted: GGUF stores the rows of Q and K interleaved per head and they must be put back.
        biases: which attention biases there are: none, Q K V always, or all four if `attention_bias` says so.
        qk_norm: queries and keys are normalised per head.
        sliding: which layers slide where the file gives a window but no list: none, every, or those from
            `max_window_layers` up.
        sliding_switch: a window counts only if `use_sliding_window` is true.
        hf_names, gguf_names: canonical name (`layers.{i}.` left out) → the file's name.
    """

    name: str
    gguf_archs: tuple[str, ...]
    gguf_permuted: bool = False
    biases: Literal["none", "qkv", "attention_bias"] = "none"
    qk_norm: bool = False
    sliding: Literal["none", "every", "upper"] = "none"
    sliding_switch: bool = False
    hf_names: Mapping[str, str] = field(default_factory=lambda: _HF_NAMES)
    gguf_names: Mapping[str, str] = field(default_factory=lambda: _GGUF_NAMES)

    def file_name(self, canonical: str, kind: Literal["hf", "gguf"]) -> str:
        """The name under which a file of that kind holds a tensor."""
        names = self.hf_names if kind == "hf" else self.gguf_names
        if not canonical.startswith("layers."):
            return names[canonical]
        _, index, part = canonical.split(".")
        return names[part].format(i=index)


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        family.name: family
        for family in (
            Family("llama", ("llama",), gguf_permuted=True, biases="attention_bias"),
            Family("mistral", ("mistral",), gguf_permuted=True, sliding="every"),
            Family("qwen2", ("qwen2",), biases="qkv", sliding="upper", sliding_switch=True),
            Family(
                "qwen3",
                ("qwen3",),
                biases="attention_bias",
                qk_norm=True,
                sliding="upper",
                sliding_switch=True,
            ),
        )
    }
)
