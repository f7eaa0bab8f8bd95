"""From the facts of a GGUF file to a ModelSpec."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from sapwood.errors import ModelError
from sapwood.model.facts import Facts
from sapwood.model.families import FAMILIES, Family, sliding_layers
from sapwood.model.rope import RopeSpec, yarn_attention_scale
from sapwood.model.spec import Experts, ModelSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sapwood.model.gguf_file import GgufFile

_TURN_ENDS = frozenset({"<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>"})
"""Tokens that end a chat turn whatever the file calls its end token (many name only a document's end)."""

_CONTROL = 3

_COMPUTED: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {"expert_gating_func": (1,), "expert_shared_count": (0,), "expert_weights_scale": (0, 1)}
)
"""What a file may say of its experts, if anything: a softmax (1) over the router, none shared, weights as they are."""


def spec_from_gguf(file: GgufFile) -> ModelSpec:
    """Raises ModelError for an architecture or rope scaling that is not computed here, or a missing key."""
    facts = Facts(str(file.path), file.facts)
    arch = facts.text("general.architecture")
    family = _family(facts, arch)
    heads, layers = facts.integer(f"{arch}.attention.head_count"), facts.integer(f"{arch}.block_count")
    hidden = facts.integer(f"{arch}.embedding_length")
    head_dim = facts.integer(f"{arch}.attention.key_length", hidden // max(heads, 1))
    if facts.integer(f"{arch}.attention.value_length", head_dim) != head_dim:
        raise ModelError(
            f"{file.path}: '{arch}.attention.value_length' differs from the key length {head_dim}"
        )
    window = facts.integer(f"{arch}.attention.sliding_window", 0) or None
    experts = _experts(facts, arch)
    size = "feed_forward_length" if experts is None else "expert_feed_forward_length"
    return ModelSpec(
        family=family.name,
        vocab_size=_vocab_size(file),
        hidden_size=hidden,
        layers=layers,
        heads=heads,
        kv_heads=facts.integer(f"{arch}.attention.head_count_kv", heads),
        head_dim=head_dim,
        ffn_size=facts.integer(f"{arch}.{size}", facts.integer(f"{arch}.feed_forward_length", 0)),
        max_context=facts.integer(f"{arch}.context_length"),
        norm_eps=facts.number(f"{arch}.attention.layer_norm_rms_epsilon"),
        rope=_rope(file, facts, arch, head_dim),
        tied="output.weight" not in file.tensors,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        o_bias="blk.0.attn_output.bias" in file.tensors,
        qk_norm=family.qk_norm,
        post_norms=family.post_norms,
        activation=family.activation,
        embed_scale=math.sqrt(hidden) if family.scaled_embedding else 1.0,
        attention_scale=_attention_scale(facts, arch, family),
        experts=experts,
        local_rope=_local_rope(facts, arch, family, head_dim),
        sliding_window=window,
        sliding_layers=_sliding(facts, arch, family, min(layers, 4096)),
        bos_token_id=_optional_id(facts, "tokenizer.ggml.bos_token_id"),
        eos_token_ids=_end_tokens(facts),
    )


def _family(facts: Facts, arch: str) -> Family:
    for family in FAMILIES.values():
        if arch in family.gguf_archs:
            return family
    known = ", ".join(name for family in FAMILIES.values() for name in family.gguf_archs)
    raise ModelError(f"{facts.source}: the architecture {arch!r} is not supported; known are {known}")


def _experts(facts: Facts, arch: str) -> Experts | None:
    for key, computed in _COMPUTED.items():
        if facts.number(f"{arch}.{key}", computed[0]) not in computed:
            raise ModelError(
                f"{facts.source}: '{arch}.{key}' is {facts.number(f'{arch}.{key}'):g}; "
                f"computed here: {', '.join(map(str, computed))}"
            )
    count = facts.integer(f"{arch}.expert_count", 0)
    if not count:
        return None
    normalised = facts.flag(f"{arch}.expert_weights_norm", True)
    return Experts(count, facts.integer(f"{arch}.expert_used_count"), normalised)


def _sliding(facts: Facts, arch: str, family: Family, layers: int) -> tuple[bool, ...]:
    """A file that names a window means every layer, but where the family has a pattern."""
    if not facts.integer(f"{arch}.attention.sliding_window", 0):
        return (False,) * layers
    if family.sliding != "pattern":
        return (True,) * layers
    period = facts.integer(f"{arch}.attention.sliding_window_pattern", family.sliding_period)
    return sliding_layers(family, layers, first=0, period=period)


def _attention_scale(facts: Facts, arch: str, family: Family) -> float | None:
    if facts.has(f"{arch}.attention.scale"):
        return facts.number(f"{arch}.attention.scale")
    if facts.integer(f"{arch}.block_count") not in family.gguf_scalar_by_heads:
        return None
    heads = facts.integer(f"{arch}.attention.head_count")
    return float((facts.integer(f"{arch}.embedding_length") / max(heads, 1)) ** -0.5)


def _local_rope(facts: Facts, arch: str, family: Family, head_dim: int) -> RopeSpec | None:
    if family.local_theta is None:
        return None
    return RopeSpec(facts.number(f"{arch}.rope.freq_base_swa", family.local_theta), head_dim)


def _vocab_size(file: GgufFile) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelError(f"{file.path} lacks the tensor 'token_embd.weight'")
    return embedding.rows


def _rope(file: GgufFile, facts: Facts, arch: str, head_dim: int) -> RopeSpec:
    theta = facts.number(f"{arch}.rope.freq_base", 10_000.0)
    dim = facts.integer(f"{arch}.rope.dimension_count", head_dim)
    if "rope_factors_long.weight" in file.tensors:
        return _longrope(file, facts, arch, RopeSpec(theta, dim))
    divisors = _divisors(file, "rope_freqs.weight")
    kind = facts.text(f"{arch}.rope.scaling.type", "none")
    legacy = facts.number(f"{arch}.rope.scale_linear", 1.0)
    factor = facts.number(f"{arch}.rope.scaling.factor", legacy)
    if kind == "yarn":
        multiplier = facts.number(f"{arch}.rope.scaling.attn_factor", 1.0)
        return RopeSpec(
            theta,
            dim,
            "yarn",
            factor,
            original_max_position=facts.integer(f"{arch}.rope.scaling.original_context_length"),
            attention_factor=multiplier * yarn_attention_scale(factor),
            freq_factors=divisors,
        )
    if kind not in ("none", "linear"):
        raise ModelError(
            f"{file.path}: the rope scaling {kind!r} is not supported; known are none, linear, yarn"
        )
    if kind == "none" and factor == 1.0:
        return RopeSpec(theta, dim, freq_factors=divisors)
    return RopeSpec(theta, dim, "linear", factor, freq_factors=divisors)


def _longrope(file: GgufFile, facts: Facts, arch: str, plain: RopeSpec) -> RopeSpec:
    """As of a `config.json`: one choice of factors, by the longest text."""
    longest = facts.integer(f"{arch}.context_length")
    original = facts.integer(f"{arch}.rope.scaling.original_context_length", longest)
    return RopeSpec(
        plain.theta,
        plain.dim,
        "longrope",
        longest / max(original, 1),
        original_max_position=original,
        attention_factor=facts.number(f"{arch}.rope.scaling.attn_factor", 1.0),
        freq_factors=_divisors(
            file, "rope_factors_long.weight" if longest > original else "rope_factors_short.weight"
        ),
    )


FREQUENCY_TENSORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""What divides the rope's frequencies: Llama 3's scaling, and Phi-3's for short and for long texts."""


def _divisors(file: GgufFile, name: str) -> tuple[float, ...] | None:
    stored = file.tensors.get(name)
    if stored is None:
        return None
    if stored.layout.name != "F32":
        raise ModelError(f"{file.path}: tensor {name!r} is {stored.layout.name}; F32 was expected")
    return tuple(float(f) for f in stored.data.view(np.dtype("<f4")).ravel())


def _optional_id(facts: Facts, key: str) -> int | None:
    return facts.integer(key) if facts.has(key) else None


def _end_tokens(facts: Facts) -> tuple[int, ...]:
    named = (_optional_id(facts, f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot"))
    found = dict.fromkeys(token for token in named if token is not None)
    tokens, kinds = facts.values.get("tokenizer.ggml.tokens"), facts.values.get("tokenizer.ggml.token_type")
    if isinstance(tokens, list) and isinstance(kinds, list):
        pairs = enumerate(zip(tokens, kinds, strict=False))
        found.update({i: None for i, (text, kind) in pairs if kind == _CONTROL and text in _TURN_ENDS})
    return tuple(found)
