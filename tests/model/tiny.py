"""Makers of tiny random models: safetensors folders through transformers, GGUF files through `gguf`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from sapwood.model.pull import resolve

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGED = ("th", "he", "in", "er", "an", "the", "re", "on", "at", "en", "nd", "and", "ti", "es", "or", "te")
VOCAB_SIZE = 320
"""Rows of the embedding; the tokenizer has fewer entries."""

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_SHAPE: Mapping[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}


def default_model() -> Path:
    """The default model's GGUF file, fetched on first use."""
    return resolve("smollm2-135m")


def tiny_llama(folder: Path, **changes: Any) -> Path:
    """Llama; `changes` are config keys, such as `rope_parameters={"rope_type": "llama3", …}`."""
    return _tiny(folder, "Llama", changes)


def tiny_mistral(folder: Path, **changes: Any) -> Path:
    """Mistral with a sliding window of 24 tokens on every layer; `sliding_window=None` switches it off."""
    return _tiny(folder, "Mistral", {"sliding_window": 24, **changes})


def tiny_qwen2(folder: Path, **changes: Any) -> Path:
    """Qwen2: Q, K and V have biases. Tied by default, as the small ones are."""
    return _tiny(folder, "Qwen2", {"tie_word_embeddings": True, **changes})


def tiny_qwen3(folder: Path, **changes: Any) -> Path:
    """Qwen3: norms on queries and keys, heads wider than hidden / heads."""
    return _tiny(folder, "Qwen3", {"head_dim": 32, **changes})


def tiny_gemma3(folder: Path, **changes: Any) -> Path:
    """Gemma 3, three layers of which two slide over 24 tokens with a rope of their own; its scale is not head_dim's."""
    shape = {
        "num_hidden_layers": 3,
        "sliding_window_pattern": 3,
        "sliding_window": 24,
        "query_pre_attn_scalar": 24,
        "tie_word_embeddings": True,
        "pad_token_id": 0,
    }
    return _tiny(folder, "Gemma3", {**shape, **changes}, config="Gemma3TextConfig")


def tiny_phi3(folder: Path, **changes: Any) -> Path:
    """Phi-3: fused projections, half of each head rotated, a sliding window of 24 tokens."""
    rope = {"partial_rotary_factor": 0.5, "sliding_window": 24, "pad_token_id": 0}
    return _tiny(folder, "Phi3", {**rope, **changes})


def tiny_qwen3_moe(folder: Path, **changes: Any) -> Path:
    """Qwen3's mixture: two of eight experts, weights that sum to one."""
    experts = {
        "head_dim": 32,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "norm_topk_prob": True,
    }
    return _tiny(folder, "Qwen3Moe", {**experts, **changes})


def tiny_mixtral(folder: Path, **changes: Any) -> Path:
    """Mixtral: two of four experts; its GGUF files say `llama`."""
    return _tiny(folder, "Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2, **changes})


def _tiny(folder: Path, family: str, changes: Mapping[str, Any], config: str | None = None) -> Path:
    """Saves a random model, a byte-level tokenizer and a chat template into `folder`.

    Besides config keys, `changes` may hold `dtype` ("float32", "bfloat16", …), `seed` and `shard_size`.
    """
    import torch
    import transformers

    options = {"dtype": "float32", "seed": 0, "shard_size": "1GB", **changes}
    dtype, seed, shard_size = options.pop("dtype"), options.pop("seed"), options.pop("shard_size")
    made = getattr(transformers, config or f"{family}Config")(**{**_SHAPE, **options})
    model = getattr(transformers, f"{family}ForCausalLM")(made)
    randomise(model, seed)
    model.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size=shard_size)
    write_tokenizer(folder)
    return folder


def randomise(model: Any, seed: int) -> None:
    """Spread-out weights, so that logits differ clearly; norms near 1, biases not 0."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            whole = 0.0 if "Gemma" in type(model).__name__ else 1.0
            weight.copy_(whole + 0.1 * noise if "norm" in name else 0.15 * noise)


def byte_level_alphabet() -> list[str]:
    """GPT-2's 256 characters for bytes, in byte order."""
    kept = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    moved = {byte: 256 + n for n, byte in enumerate(b for b in range(256) if b not in kept)}
    return [chr(moved.get(byte, byte)) for byte in range(256)]


def tokenizer_description() -> dict[str, Any]:
    """A tokenizer.json: three control tokens, the 256 bytes, sixteen merges."""
    entries = [*SPECIALS, *byte_level_alphabet(), *MERGED]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": text, **flags} for i, text in enumerate(SPECIALS)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {text: i for i, text in enumerate(entries)},
            "merges": [[word[:-1], word[-1]] for word in MERGED],
        },
    }


def write_tokenizer(folder: Path) -> None:
    """tokenizer.json and tokenizer_config.json, with ChatML as the chat template."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_description()), encoding="utf-8")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIALS[0],
        "eos_token": SPECIALS[2],
        "chat_template": CHATML,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def gguf_of(
    folder: Path, path: Path, kind: str = "F32", extra: Mapping[str, Any] | None = None, **facts: Any
) -> Path:
    """The same model as GGUF: matrices stored as ggml type `kind`, vectors as F32, changed as converters do.

    Llama's Q and K are permuted, experts stacked, Gemma's norms stored whole.

    `facts` replace or add metadata; a `None` leaves a key out. `__` in a name stands for a dot.
    `extra` are float32 tensors that the folder has not, by name.
    """
    from gguf import GGUFWriter

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    arch = _ARCHS.get(config["model_type"], config["model_type"])
    writer = GGUFWriter(path, arch)
    for key, value in {
        **_metadata(arch, config),
        **{k.replace("__", "."): v for k, v in facts.items()},
    }.items():
        _write_fact(writer, key, value)
    for name, values in _stacked(_tensors(folder)).items():
        _write_tensor(writer, name, values, kind, arch, config)
    for name, divisors in {**_divisors(config), **(extra or {})}.items():
        writer.add_tensor(name, np.array(divisors, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _metadata(arch: str, config: Mapping[str, Any]) -> dict[str, Any]:
    rope = config.get("rope_parameters") or {"rope_theta": config.get("rope_theta", 10_000.0)}
    rope = rope.get("full_attention", rope)
    entries = [*SPECIALS, *byte_level_alphabet(), *MERGED]
    return {
        "general.name": "tiny",
        f"{arch}.block_count": config["num_hidden_layers"],
        f"{arch}.context_length": config["max_position_embeddings"],
        f"{arch}.embedding_length": config["hidden_size"],
        f"{arch}.feed_forward_length": config["intermediate_size"],
        f"{arch}.attention.head_count": config["num_attention_heads"],
        f"{arch}.attention.head_count_kv": config["num_key_value_heads"],
        f"{arch}.attention.key_length": config["head_dim"],
        f"{arch}.attention.value_length": config["head_dim"],
        f"{arch}.attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        f"{arch}.rope.freq_base": float(rope["rope_theta"]),
        f"{arch}.rope.dimension_count": int(config["head_dim"] * rope.get("partial_rotary_factor", 1.0)),
        f"{arch}.attention.sliding_window": config.get("sliding_window") if arch in _WINDOWED else None,
        **_special_facts(arch, config, rope),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": entries,
        "tokenizer.ggml.token_type": [3] * len(SPECIALS) + [1] * (len(entries) - len(SPECIALS)),
        "tokenizer.ggml.merges": [f"{word[:-1]} {word[-1]}" for word in MERGED],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": CHATML,
    }


_ARCHS = {"mistral": "llama", "mixtral": "llama", "gemma3_text": "gemma3", "qwen3_moe": "qwen3moe"}
_WINDOWED = ("llama", "gemma3", "phi3")


def _special_facts(arch: str, config: Mapping[str, Any], rope: Mapping[str, Any]) -> dict[str, Any]:
    """What only some families say. Gemma's scale and pattern are not in real files, whose values they have."""
    found: dict[str, Any] = {}
    if arch == "gemma3":
        found[f"{arch}.attention.scale"] = config["query_pre_attn_scalar"] ** -0.5
        found[f"{arch}.attention.sliding_window_pattern"] = config["_sliding_window_pattern"]
    if "num_local_experts" in config:
        found[f"{arch}.expert_count"] = config["num_local_experts"]
        found[f"{arch}.expert_used_count"] = config["num_experts_per_tok"]
        found[f"{arch}.expert_feed_forward_length"] = config.get("moe_intermediate_size")
    if rope.get("rope_type") == "longrope":
        found[f"{arch}.rope.scaling.original_context_length"] = config["original_max_position_embeddings"]
        found[f"{arch}.rope.scaling.attn_factor"] = rope["attention_factor"]
    return found


def _divisors(config: Mapping[str, Any]) -> dict[str, list[float]]:
    """The rope's divisors that travel as tensors: Phi-3's factors, and Llama 3's scaling by its published rule."""
    rope = config.get("rope_parameters") or {}
    if rope.get("rope_type") == "longrope":
        return {f"rope_factors_{kind}.weight": rope[f"{kind}_factor"] for kind in ("long", "short")}
    if rope.get("rope_type") != "llama3":
        return {}
    context, low, high = (
        rope[key] for key in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
    )
    waves = [
        2 * math.pi * rope["rope_theta"] ** (2 * i / config["head_dim"])
        for i in range(config["head_dim"] // 2)
    ]
    smooth = [min(max((context / wave - low) / (high - low), 0.0), 1.0) for wave in waves]
    return {"rope_freqs.weight": [1 / ((1 - s) / rope["factor"] + s) for s in smooth]}


def _stacked(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Experts of a kind as one tensor [experts, rows, cols] in place of theirs."""
    found: dict[str, Any] = {}
    stacks: dict[str, dict[int, Any]] = {}
    for name, values in tensors.items():
        before, experts, after = name.partition(".experts.")
        if not experts:
            found[name] = values
            continue
        number, _, part = after.partition(".")
        stacks.setdefault(f"{before}.experts.{part}", {})[int(number)] = values
    found.update({name: np.stack([of[i] for i in sorted(of)]) for name, of in stacks.items()})
    return found


def _write_fact(writer: Any, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif value is not None:
        writer.add_array(key, value)


def _tensors(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    found: dict[str, np.ndarray[Any, Any]] = {}
    for shard in sorted(folder.glob("*.safetensors")):
        found.update(load_file(shard))
    return found


_PARTS: Mapping[str, str] = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.qkv_proj": "attn_qkv",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
    "block_sparse_moe.gate": "ffn_gate_inp",
    "block_sparse_moe.experts.w1": "ffn_gate_exps",
    "block_sparse_moe.experts.w3": "ffn_up_exps",
    "block_sparse_moe.experts.w2": "ffn_down_exps",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


_GEMMA_PARTS: Mapping[str, str] = {
    **_PARTS,
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def _write_tensor(
    writer: Any, name: str, values: Any, kind: str, arch: str, config: Mapping[str, Any]
) -> None:
    from gguf import GGMLQuantizationType, quants

    if arch == "llama" and (".q_proj." in name or ".k_proj." in name):
        heads = config["num_attention_heads" if ".q_proj." in name else "num_key_value_heads"]
        values = _interleaved(values, heads)
    if arch == "gemma3" and "norm" in name:
        values = values + np.float32(1)
    named = _gguf_name(name, _GEMMA_PARTS if arch == "gemma3" else _PARTS)
    if values.ndim == 1 or kind == "F32" or "gate_inp" in named:
        writer.add_tensor(named, values.astype(np.float32))
        return
    stored = GGMLQuantizationType[kind]
    writer.add_tensor(named, quants.quantize(values.astype(np.float32), stored), raw_dtype=stored)


def _interleaved(values: Any, heads: int) -> Any:
    """Row i of a head's first half goes to 2i, of its second half to 2i + 1, as converters to GGUF do."""
    per_head = values.reshape(heads, -1, *values.shape[1:])
    half = per_head.shape[1] // 2
    mixed = np.empty_like(per_head)
    mixed[:, 0::2], mixed[:, 1::2] = per_head[:, :half], per_head[:, half:]
    return mixed.reshape(values.shape)


def _gguf_name(name: str, parts: Mapping[str, str]) -> str:
    top = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    if not name.startswith("model.layers."):
        return {**top, "lm_head.weight": "output.weight"}[name]
    _, _, layer, rest = name.split(".", 3)
    part, _, suffix = rest.rpartition(".")
    return f"blk.{layer}.{parts[part]}.{suffix}"
