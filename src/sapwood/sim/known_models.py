"""Shapes of models by name: those of the configs that their makers published, and of any `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sapwood.errors import UsageError
from sapwood.sim.config_shape import KvName, shape_of_config
from sapwood.sim.decoder_config import DecoderConfig, read_config
from sapwood.sim.model_shape import ModelShape
from sapwood.sim.packing import WeightsName


def shape_named(name: str, weights: WeightsName | int | None = None, kv: KvName = "bf16") -> ModelShape:
    """Of a known name, or of a `config.json` as transformers writes it, or of the folder with one.

    `weights` and `kv` as in `shape_of_config`. Raises UsageError if it is neither, or if its config lacks or adds what
    the count needs.
    """
    known = KNOWN_MODELS.get(name.lower())
    return shape_of_config(_config_at(name) if known is None else known, weights, kv)


def _config_at(name: str) -> DecoderConfig:
    path = Path(name) / "config.json" if Path(name).is_dir() else Path(name)
    if not path.is_file():
        raise UsageError(
            f"no model's shape is known as {name!r}, and no config.json lies there",
            hint=f"known: {', '.join(KNOWN_MODELS)}; or give the path of a config.json",
        )
    return read_config(path)


def _config(
    name: str,
    kind: str,
    hidden: int,
    intermediate: int,
    layers: int,
    heads: int,
    kv_heads: int,
    vocabulary: int,
    context: int,
    *,
    tied: bool = False,
    **more: Any,
) -> DecoderConfig:
    values = {
        "model_type": kind,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocabulary,
        "max_position_embeddings": context,
        "tie_word_embeddings": tied,
    }
    return DecoderConfig(name, values | more)


_HEAD_128: Mapping[str, Any] = MappingProxyType({"head_dim": 128})
_MOE_128: Mapping[str, Any] = MappingProxyType(
    {"head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8}
)
_GEMMA: Mapping[str, Any] = MappingProxyType(
    {"sliding_window_pattern": 6, "sliding_window": 1024, "tied": True}
)
_OSS: Mapping[str, Any] = MappingProxyType(
    {
        "head_dim": 64,
        "num_experts_per_tok": 4,
        "attention_bias": True,
        "sliding_window": 128,
        "quantization_config": {
            "quant_method": "mxfp4",
            "modules_to_not_convert": [
                "model.layers.*.self_attn",
                "model.layers.*.mlp.router",
                "model.embed_tokens",
                "lm_head",
            ],
        },
    }
)
_LATENT: Mapping[str, Any] = MappingProxyType(
    {
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048,
        "first_k_dense_replace": 3,
        "topk_method": "noaux_tc",
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    }
)

KNOWN_MODELS: Mapping[str, DecoderConfig] = MappingProxyType(
    {
        each.name: each
        for each in (
            _config("smollm2-135m", "llama", 576, 1536, 30, 9, 3, 49152, 8192, tied=True),
            _config("smollm2-1.7b", "llama", 2048, 8192, 24, 32, 32, 49152, 8192, tied=True),
            _config("llama-3-8b", "llama", 4096, 14336, 32, 32, 8, 128256, 8192),
            _config("llama-3-70b", "llama", 8192, 28672, 80, 64, 8, 128256, 8192),
            _config("llama-3.1-8b", "llama", 4096, 14336, 32, 32, 8, 128256, 131072),
            _config("llama-3.1-70b", "llama", 8192, 28672, 80, 64, 8, 128256, 131072),
            _config("llama-3.1-405b", "llama", 16384, 53248, 126, 128, 8, 128256, 131072),
            _config("llama-3.2-1b", "llama", 2048, 8192, 16, 32, 8, 128256, 131072, tied=True),
            _config("llama-3.2-3b", "llama", 3072, 8192, 28, 24, 8, 128256, 131072, tied=True),
            _config("llama-3.3-70b", "llama", 8192, 28672, 80, 64, 8, 128256, 131072),
            _config("mistral-7b", "mistral", 4096, 14336, 32, 32, 8, 32768, 32768),
            _config("mistral-small-24b", "mistral", 5120, 32768, 40, 32, 8, 131072, 32768, head_dim=128),
            _config("phi-4", "phi3", 5120, 17920, 40, 40, 10, 100352, 16384),
            _config("qwen2.5-0.5b", "qwen2", 896, 4864, 24, 14, 2, 151936, 32768, tied=True),
            _config("qwen2.5-1.5b", "qwen2", 1536, 8960, 28, 12, 2, 151936, 32768, tied=True),
            _config("qwen2.5-3b", "qwen2", 2048, 11008, 36, 16, 2, 151936, 32768, tied=True),
            _config("qwen2.5-7b", "qwen2", 3584, 18944, 28, 28, 4, 152064, 32768),
            _config("qwen2.5-14b", "qwen2", 5120, 13824, 48, 40, 8, 152064, 32768),
            _config("qwen2.5-32b", "qwen2", 5120, 27648, 64, 40, 8, 152064, 32768),
            _config("qwen2.5-72b", "qwen2", 8192, 29568, 80, 64, 8, 152064, 32768),
            _config("qwen3-0.6b", "qwen3", 1024, 3072, 28, 16, 8, 151936, 40960, tied=True, **_HEAD_128),
            _config("qwen3-1.7b", "qwen3", 2048, 6144, 28, 16, 8, 151936, 40960, tied=True, **_HEAD_128),
            _config("qwen3-4b", "qwen3", 2560, 9728, 36, 32, 8, 151936, 40960, tied=True, **_HEAD_128),
            _config("qwen3-8b", "qwen3", 4096, 12288, 36, 32, 8, 151936, 40960, **_HEAD_128),
            _config("qwen3-14b", "qwen3", 5120, 17408, 40, 40, 8, 151936, 40960, **_HEAD_128),
            _config("qwen3-32b", "qwen3", 5120, 25600, 64, 64, 8, 151936, 40960, **_HEAD_128),
            _config(
                "qwen3-30b-a3b",
                *("qwen3_moe", 2048, 6144, 48, 32, 4, 151936, 40960),
                moe_intermediate_size=768,
                **_MOE_128,
            ),
            _config(
                "qwen3-235b-a22b",
                *("qwen3_moe", 4096, 12288, 94, 64, 4, 151936, 40960),
                moe_intermediate_size=1536,
                **_MOE_128,
            ),
            _config(
                "gemma-3-1b",
                *("gemma3_text", 1152, 6912, 26, 4, 1, 262144, 32768),
                head_dim=256,
                **{**_GEMMA, "sliding_window": 512},
            ),
            _config(
                "gemma-3-4b", "gemma3_text", 2560, 10240, 34, 8, 4, 262208, 131072, head_dim=256, **_GEMMA
            ),
            _config(
                "gemma-3-12b", "gemma3_text", 3840, 15360, 48, 16, 8, 262208, 131072, head_dim=256, **_GEMMA
            ),
            _config(
                "gemma-3-27b", "gemma3_text", 5376, 21504, 62, 32, 16, 262208, 131072, head_dim=128, **_GEMMA
            ),
            _config(
                "gpt-oss-20b", "gpt_oss", 2880, 2880, 24, 64, 8, 201088, 131072, num_local_experts=32, **_OSS
            ),
            _config(
                "gpt-oss-120b",
                "gpt_oss",
                2880,
                2880,
                36,
                64,
                8,
                201088,
                131072,
                num_local_experts=128,
                **_OSS,
            ),
            _config("deepseek-v3", "deepseek_v3", 7168, 18432, 61, 128, 128, 129280, 163840, **_LATENT),
        )
    }
)
