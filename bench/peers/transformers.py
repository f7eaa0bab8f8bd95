"""Plain transformers in float32, one request after the other and nothing reused: the floor."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..asking import Abilities
from ..needs import Needs
from ..processes import Launch
from .base import Setup, Where, installed
from .openvino import SHIMS


@dataclass(frozen=True, slots=True)
class Transformers:
    python: Path
    name = "transformers"
    floor = True

    @property
    def version(self) -> str:
        return installed(self.python, "transformers") or "unknown"

    def launches(self, setup: Setup, needs: Needs) -> Sequence[Launch]:
        if needs.kv_tokens is not None:
            return []  # it keeps nothing
        flags = ["--model", str(setup.weights.hf()), "--threads", str(setup.threads)]
        command = (str(self.python), "-m", "served.transformers_shim", *flags)
        environment = {"PYTHONPATH": str(SHIMS), "HF_HUB_OFFLINE": "1"}
        return [Launch(self.name, "openai", command, environment, "float32", Abilities())]


def find_transformers(where: Where) -> Transformers | None:
    """In the environment that runs this, if it has them for its tests; else in vLLM's, which needs them."""
    if all(importlib.util.find_spec(name) is not None for name in ("torch", "transformers", "jinja2")):
        return Transformers(Path(sys.executable))
    python = where.python("vllm")
    return Transformers(python) if python else None
