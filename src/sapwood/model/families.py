"""Model families as rows of data: how their files name and store what one decoder computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from sapwood.model.ops import Activation
    from sapwood.model.spec import ModelSpec

FileKind = Literal["hf", "gguf"]

_Q_K_V_O = ("q", "k", "v", "o")


def _names(top: Mapping[str, str], layer: str, parts: Mapping[str, str]) -> Mapping[str, str]:
    """Canonical name → the file's; a layer's `parts` without their common beginning and end."""
    biases = {f"{part}_bias": f"{layer}{parts[part]}.bias" for part in _Q_K_V_O}
    weights = {part: f"{layer}{name}.weight" for part, name in parts.items()}
    return MappingProxyType({**top, **weights, **biases})


_HF_PARTS: Mapping[str, str] = MappingProxyType(
    {
        "attn_norm": "input_layernorm",
        "q": "self_attn.q_proj",
        "k": "self_attn.k_proj",
        "v": "self_attn.v_proj",
        "o": "self_attn.o_proj",
        "q_norm": "self_attn.q_norm",
        "k_norm": "self_attn.k_norm",
        "mlp_norm": "post_attention_layernorm",
        "gate": "mlp.gate_proj",
        "up": "mlp.up_proj",
        "down": "mlp.down_proj",
        "router": "mlp.gate",
        "experts.gate": "mlp.experts.{e}.gate_proj",
        "experts.up": "mlp.experts.{e}.up_proj",
        "experts.down": "mlp.experts.{e}.down_proj",
    }
)


def _hf(**changes: str) -> Mapping[str, str]:
    top = {
        "embed": "model.embed_tokens.weight",
        "final_norm": "model.norm.weight",
        "lm_head": "lm_head.weight",
    }
    return _names(top, "model.layers.{i}.", {**_HF_PARTS, **changes})


_GGUF_PARTS: Mapping[str, str] = MappingProxyType(
    {
        "attn_norm": "attn_norm",
        "q": "attn_q",
        "k": "attn_k",
        "v": "attn_v",
        "o": "attn_output",
        "q_norm": "attn_q_norm",
        "k_norm": "attn_k_norm",
        "attn_post_norm": "post_attention_norm",
        "mlp_norm": "ffn_norm",
        "gate": "ffn_gate",
        "up": "ffn_up",
        "down": "ffn_down",
        "mlp_post_norm": "post_ffw_norm",
        "router": "ffn_gate_inp",
        "experts.gate": "ffn_gate_exps",
        "experts.up": "ffn_up_exps",
        "experts.down": "ffn_down_exps",
    }
)


def _gguf(**changes: str) -> Mapping[str, str]:
    top = {"embed": "token_embd.weight", "final_norm": "output_norm.weight", "lm_head": "output.weight"}
    return _names(top, "blk.{i}.", {**_GGUF_PARTS, **changes})


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file keeps a tensor: in the stored matrix `name` of `of` rows, from row `first` on."""

    name: str
    first: int
    of: int


@dataclass(frozen=True, slots=True)
class Family:
    """A model family: how its files name and store what one decoder computes.

    Attributes:
        name: transformers' `model_type`.
        gguf_archs: GGUF architectures that are read as this family.
        hf_names, gguf_names: canonical name (`layers.{i}.` and an expert's number left out) → the file's name.
            Tensors of one name lie in it one after another, in the order of `ModelSpec.extents()`.
        gguf_permuted: GGUF stores the rows of Q and K interleaved per head and they must be put back.
        biases: which attention biases there are: none, Q K V always, or all four if `attention_bias` says so.
        qk_norm: queries and keys are normalised per head.
        post_norms: what attention and MLP give is normalised before it is added.
        hf_norms_from_one: safetensors hold the norms' weights less 1 (GGUF files hold them whole).
        scaled_embedding: embeddings are multiplied by the square root of their width.
        activation: of the gated MLP.
        tied: whether the logits reuse the embedding where `config.json` does not say.
        query_scalar: `query_pre_attn_scalar` gives the attention's scale, this where `config.json` does not say;
            None: head_dim does.
        gguf_scalar_by_heads: layer counts of models that are scaled by hidden size / heads instead of head_dim,
            which GGUF does not say.
        sliding: which layers slide where the file gives a window but no list: none, every, those from
            `max_window_layers` up, or all but each `sliding_period`-th.
        sliding_switch: a window counts only if `use_sliding_window` is true.
        local_theta: base of the rope of sliding layers where the file names none; None: that of the others.
        experts_normalised: the weights of a token's experts sum to one, where `config.json` does not say (in GGUF
            files they then do, as in all that llama.cpp runs of these families).
        theta, norm_eps: base of the rope and the norms' epsilon, where `config.json` does not say.
    """

    name: str
    gguf_archs: tuple[str, ...]
    hf_names: Mapping[str, str] = field(default_factory=_hf)
    gguf_names: Mapping[str, str] = field(default_factory=_gguf)
    gguf_permuted: bool = False
    biases: Literal["none", "qkv", "attention_bias"] = "none"
    qk_norm: bool = False
    post_norms: bool = False
    hf_norms_from_one: bool = False
    scaled_embedding: bool = False
    activation: Activation = "silu"
    tied: bool = False
    query_scalar: float | None = None
    gguf_scalar_by_heads: frozenset[int] = frozenset()
    sliding: Literal["none", "every", "upper", "pattern"] = "none"
    sliding_period: int = 1
    sliding_switch: bool = False
    local_theta: float | None = None
    experts_normalised: bool = False
    theta: float = 10_000.0
    norm_eps: float = 1e-6

    def file_name(self, canonical: str, kind: FileKind) -> str:
        """The name under which a file of that kind holds a tensor."""
        names = self.hf_names if kind == "hf" else self.gguf_names
        if not canonical.startswith("layers."):
            return names[canonical]
        _, index, part = canonical.split(".", 2)
        if not part.startswith("experts."):
            return names[part].format(i=index)
        _, expert, part = part.split(".")
        return names[f"experts.{part}"].format(i=index, e=expert)

    def places(self, spec: ModelSpec, kind: FileKind) -> Mapping[str, Place]:
        """Where a file of that kind keeps each tensor of `spec.extents()`."""
        names = {canonical: self.file_name(canonical, kind) for canonical in spec.extents()}
        firsts: dict[str, int] = {}
        filled = dict.fromkeys(names.values(), 0)
        for canonical, extent in spec.extents().items():
            firsts[canonical] = filled[names[canonical]]
            filled[names[canonical]] += extent.rows
        return MappingProxyType(
            {canonical: Place(name, firsts[canonical], filled[name]) for canonical, name in names.items()}
        )


_GEMMA3 = Family(
    "gemma3_text",
    ("gemma3",),
    hf_names=_hf(
        attn_post_norm="post_attention_layernorm",
        mlp_norm="pre_feedforward_layernorm",
        mlp_post_norm="post_feedforward_layernorm",
    ),
    qk_norm=True,
    post_norms=True,
    hf_norms_from_one=True,
    scaled_embedding=True,
    activation="gelu_tanh",
    tied=True,
    query_scalar=256.0,
    gguf_scalar_by_heads=frozenset({62}),
    sliding="pattern",
    sliding_period=6,
    theta=1_000_000.0,
    local_theta=10_000.0,
    biases="attention_bias",
)

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
            _GEMMA3,
            Family(
                "phi3",
                ("phi3",),
                hf_names=_hf(
                    q="self_attn.qkv_proj",
                    k="self_attn.qkv_proj",
                    v="self_attn.qkv_proj",
                    gate="mlp.gate_up_proj",
                    up="mlp.gate_up_proj",
                ),
                gguf_names=_gguf(q="attn_qkv", k="attn_qkv", v="attn_qkv", gate="ffn_up"),
                sliding="every",
                norm_eps=1e-5,
            ),
            Family(
                "qwen3_moe",
                ("qwen3moe",),
                biases="attention_bias",
                qk_norm=True,
                sliding="every",
                sliding_switch=True,
            ),
            Family(
                "mixtral",
                (),
                hf_names=_hf(
                    **{
                        "router": "block_sparse_moe.gate",
                        "experts.gate": "block_sparse_moe.experts.{e}.w1",
                        "experts.up": "block_sparse_moe.experts.{e}.w3",
                        "experts.down": "block_sparse_moe.experts.{e}.w2",
                    }
                ),
                sliding="every",
                experts_normalised=True,
                theta=1_000_000.0,
                norm_eps=1e-5,
            ),
        )
    }
)


def sliding_layers(family: Family, layers: int, *, first: int, period: int) -> tuple[bool, ...]:
    """Which of so many layers slide by the family's rule; `first` is where the upper ones begin."""
    rules: Mapping[str, Callable[[int], bool]] = {
        "none": lambda _: False,
        "every": lambda _: True,
        "upper": lambda i: i >= first,
        "pattern": lambda i: (i + 1) % max(period, 1) != 0,
    }
    return tuple(rules[family.sliding](i) for i in range(layers))
