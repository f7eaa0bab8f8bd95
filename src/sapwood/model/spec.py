"""What a decoder needs to know about a model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from sapwood.errors import ModelError
from sapwood.model.rope import RopeFrequencies, RopeSpec

if TYPE_CHECKING:
    from sapwood.model.ops import Activation

__all__ = ["Experts", "Extent", "ModelSpec", "RopeFrequencies", "RopeSpec"]

_MOST_LAYERS = 4096


@dataclass(frozen=True, slots=True)
class Extent:
    """Rows (outputs) × columns (inputs) of a weight; a vector has one row."""

    rows: int
    cols: int


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts in place of every MLP. Raises ModelError for numbers that cannot be.

    Attributes:
        count: experts of a layer.
        used: how many of them a token runs through, those with the highest scores.
        normalised: their weights sum to one; else each is its share of the softmax over all.
    """

    count: int
    used: int
    normalised: bool

    def __post_init__(self) -> None:
        if not 1 <= self.used <= self.count <= _MOST_LAYERS:
            raise ModelError(
                f"the model has {self.count} experts and uses {self.used}; "
                f"between 1 and all of at most {_MOST_LAYERS} were expected"
            )


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A decoder-only transformer of the Llama shape. Raises ModelError for numbers that cannot be.

    Attributes:
        family: name of the row in FAMILIES.
        vocab_size: rows of the embedding, so the number of logits (may exceed the tokenizer's).
        hidden_size, layers, heads, kv_heads, head_dim, ffn_size: the extents; `ffn_size` of one expert if there are.
        max_context: longest sequence in tokens.
        norm_eps: epsilon of every RMS norm.
        rope: rotary embedding, half-split order.
        tied: the logits reuse the embedding; there is no `lm_head`.
        qkv_bias, o_bias: linear layers of the attention that add a bias.
        qk_norm: RMS norm over head_dim on each head's query and key, before the rope.
        post_norms: RMS norm over what attention and MLP give, before it is added.
        activation: of the gated MLP.
        embed_scale: embeddings are multiplied by it, rounded to float32.
        attention_scale: queries are multiplied by it; None means head_dim^-0.5.
        experts: the mixture of experts, or None for one MLP.
        local_rope: the rope of the layers that slide, or None for that of the others.
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
    post_norms: bool = False
    activation: Activation = "silu"
    embed_scale: float = 1.0
    attention_scale: float | None = None
    experts: Experts | None = None
    local_rope: RopeSpec | None = None
    sliding_window: int | None = None
    sliding_layers: tuple[bool, ...] = ()
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    @property
    def attention_tokens(self) -> int | None:
        """Prefix length at which attention costs as much as all the rest of a token; None if every layer slides."""
        width = self.heads * self.head_dim
        mlp = 3 * self.ffn_size * (1 if self.experts is None else self.experts.used)
        linear = self.hidden_size * (2 * width + 2 * self.kv_heads * self.head_dim + mlp)
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
            *(
                ("head_dim", rope.dim <= self.head_dim, f"at least the {rope.dim} rotated values")
                for rope in (self.rope, self.local_rope or self.rope)
            ),
            ("embed_scale", _sound(self.embed_scale), "a finite number above 0"),
            ("attention_scale", _sound(self.attention_scale or 1.0), "a finite number above 0"),
            ("norm_eps", _sound(self.norm_eps), "a finite number above 0"),
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
            **self._mlp_extents(),
        }
        if self.qkv_bias:
            found.update(q_bias=Extent(1, queries), k_bias=Extent(1, keys), v_bias=Extent(1, keys))
        if self.o_bias:
            found["o_bias"] = Extent(1, self.hidden_size)
        if self.qk_norm:
            found.update(q_norm=Extent(1, self.head_dim), k_norm=Extent(1, self.head_dim))
        if self.post_norms:
            found.update(
                attn_post_norm=Extent(1, self.hidden_size), mlp_post_norm=Extent(1, self.hidden_size)
            )
        return found

    def _mlp_extents(self) -> dict[str, Extent]:
        one = {
            "gate": Extent(self.ffn_size, self.hidden_size),
            "up": Extent(self.ffn_size, self.hidden_size),
            "down": Extent(self.hidden_size, self.ffn_size),
        }
        if self.experts is None:
            return one
        every = {
            f"experts.{e}.{part}": extent for e in range(self.experts.count) for part, extent in one.items()
        }
        return {"router": Extent(self.experts.count, self.hidden_size), **every}


def _sound(number: float) -> bool:
    return math.isfinite(number) and number > 0
