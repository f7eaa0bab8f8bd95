"""Our own server, as it is started to be measured."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from .asking import Abilities
from .errors import BenchError
from .needs import Needs
from .processes import Launch
from .prompts import Form

KV_MEMORY = "1GiB"


@dataclass(frozen=True, slots=True)
class Ours:
    """Attributes:
    model: as `sapwood serve` takes it.
    """

    model: str
    threads: int
    extra: tuple[str, ...] = ()
    form: Form = "ids"
    setting: str = ""

    def launch(self, needs: Needs) -> Launch:
        """Raises BenchError where memory for so many tokens cannot be told."""
        memory = KV_MEMORY
        if needs.kv_tokens is not None:
            memory = f"{needs.kv_tokens * kv_bytes(weights_file(self.model))}B"
        flags = ("--threads", str(self.threads), "--kv-memory", memory, *self.extra)
        command = (sys.executable, "-m", "sapwood", "serve", self.model, *flags)
        return Launch("sapwood", "sapwood", command, setting=self.setting, abilities=our_abilities(self.form))


def our_abilities(form: Form = "ids") -> Abilities:
    return Abilities(form, forget="/flush_cache")


def kv_bytes(file: Path) -> int:
    """Of one token, in float16."""
    from sapwood.model.gguf_config import spec_from_gguf
    from sapwood.model.gguf_file import read_gguf

    spec = spec_from_gguf(read_gguf(file))
    return 2 * 2 * spec.layers * spec.kv_heads * spec.head_dim


def weights_file(model: str) -> Path:
    """The GGUF file that a model is. Raises BenchError."""
    from sapwood.errors import SapwoodError
    from sapwood.model import resolve

    from .document import tell

    try:
        path = resolve(model, progress=tell)
    except SapwoodError as error:
        raise BenchError(str(error)) from error
    if path.suffix != ".gguf":
        raise BenchError(
            f"{path.name} is no GGUF file; peers are started from those alone (or use --peers none)"
        )
    return path
