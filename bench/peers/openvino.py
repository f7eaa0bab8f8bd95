"""OpenVINO GenAI's continuous batching with prefix caching, behind a shim of ours that speaks OpenAI's dialect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..asking import Abilities
from ..needs import Needs
from ..processes import Launch
from .base import Setup, Where, installed
from .weights import GgufType

SHIMS = Path(__file__).parent / "shims"
_FORMATS: Sequence[GgufType | None] = ("F16", "Q8_0", None)


@dataclass(frozen=True, slots=True)
class OpenVino:
    python: Path
    name = "OpenVINO GenAI"
    floor = False

    @property
    def version(self) -> str:
        return installed(self.python, "openvino-genai") or "unknown"

    def launches(self, setup: Setup, needs: Needs) -> Sequence[Launch]:
        return [self._launch(setup, needs, kind) for kind in _FORMATS]

    def _launch(self, setup: Setup, needs: Needs, kind: GgufType | None) -> Launch:
        flags = ["--model", str(setup.weights.gguf(kind)), "--texts", str(setup.weights.hf())]
        flags += ["--threads", str(setup.threads)]
        if needs.kv_tokens is not None:
            flags += ["--kv-tokens", str(needs.kv_tokens)]
        command = (str(self.python), "-m", "served.openvino_shim", *flags)
        environment = {"PYTHONPATH": str(SHIMS)}
        abilities = Abilities(forget="/flush_cache")
        setting = kind or setup.weights.kind
        return Launch(self.name, "openai", command, environment, f"{setting}, 8-bit KV", abilities)


def find_openvino(where: Where) -> OpenVino | None:
    python = where.python("openvino")
    return OpenVino(python) if python else None
