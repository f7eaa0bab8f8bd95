"""From the facts of a GGUF file to a ModelSpec."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sapwood.errors import ModelError
from sapwood.model.facts import Facts
from sapwood.model.rope import RopeSpec, yarn_attention_scale
from sapwood.model.spec import FAMILIES, Family, ModelSpec

if TYPE_CHECKING:
    from sapwood.model.gguf_file import GgufFile

_TURN_ENDS = frozenset({"<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>"})
"""Tokens that end a chat turn whatever the file calls its end token (many name only a document's end)."""

_CONTROL = 3


def spec_from_gguf(file: GgufFile) -> ModelSpec:
    """Raises ModelError for an architecture or rope scaling that is not computed here, or a missing key."""
    facts = Facts(str(file.path), file.facts)
    arch = facts.text("general.architecture")
    family = _family(facts, arch)
    if facts.integer(f"{arch}.expert_count", 0):
        raise ModelError(f"{file.path}: mixtures of experts ('{arch}.expert_count') are not supported")
    heads, layers = facts.integer(f"{arch}.attention.head_count"), facts.integer(f"{arch}.block_count")
    hidden = facts.integer(f"{arch}.embedding_length")
    head_dim = facts.integer(f"{arch}.attention.key_length", hidden // max(heads, 1))
    if facts.integer(f"{arch}.attention.value_length", head_dim) != head_dim:
        raise ModelError(
            f"{file.path}: '{arch}.attention.value_length' differs from the key length {head_dim}"
        )
    window = facts.integer(f"{arch}.attention.sliding_window", 0) or None
    return ModelSpec(
        family=family.name,
        vocab_size=_vocab_size(file),
        hidden_size=hidden,
        layers=layers,
        heads=heads,
        kv_heads=facts.integer(f"{arch}.attention.head_count_kv", heads),
        head_dim=head_dim,
        ffn_size=facts.integer(f"{arch}.feed_forward_length"),
        max_context=facts.integer(f"{arch}.context_length"),
        norm_eps=facts.number(f"{arch}.attention.layer_norm_rms_epsilon"),
        rope=_rope(file, facts, arch, head_dim),
        tied="output.weight" not in file.tensors,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        o_bias="blk.0.attn_output.bias" in file.tensors,
        qk_norm=family.qk_norm,
        sliding_window=window,
        sliding_layers=(window is not None,) * min(layers, 4096),
        bos_token_id=_optional_id(facts, "tokenizer.ggml.bos_token_id"),
        eos_token_ids=_end_tokens(facts),
    )


def _family(facts: Facts, arch: str) -> Family:
    for family in FAMILIES.values():
        if arch in family.gguf_archs:
            return family
    known = ", ".join(name for family in FAMILIES.values() for name in family.gguf_archs)
    raise ModelError(f"{facts.source}: the architecture {arch!r} is not supported; known are {known}")


def _vocab_size(file: GgufFile) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelError(f"{file.path} lacks the tensor 'token_embd.weight'")
    return embedding.rows


def _rope(file: GgufFile, facts: Facts, arch: str, head_dim: int) -> RopeSpec:
    theta = facts.number(f"{arch}.rope.freq_base", 10_000.0)
    dim = facts.integer(f"{arch}.rope.dimension_count", head_dim)
    divisors = _frequency_divisors(file)
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


def _frequency_divisors(file: GgufFile) -> tuple[float, ...] | None:
    """Llama 3's scaling travels in GGUF as one divisor per frequency."""
    stored = file.tensors.get("rope_freqs.weight")
    if stored is None:
        return None
    if stored.layout.name != "F32":
        raise ModelError(f"{file.path}: tensor 'rope_freqs.weight' is {stored.layout.name}; F32 was expected")
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
