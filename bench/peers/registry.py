"""All peers by name, and which of them are here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from ..document import tell
from ..errors import BenchUsageError
from .base import Peer, Where
from .llama import find_llama
from .openvino import find_openvino
from .transformers import find_transformers
from .vllm import find_vllm

FINDERS: Mapping[str, Callable[[Where], Peer | None]] = MappingProxyType(
    {
        "llama": find_llama,
        "vllm": find_vllm,
        "openvino": find_openvino,
        "transformers": find_transformers,
    }
)


def find_peers(wanted: str, where: Where) -> Sequence[Peer]:
    """`wanted` is "auto" (those that are here), "none", or names with commas between, which must be here.

    Raises BenchUsageError.
    """
    if wanted == "none":
        return ()
    names = list(FINDERS) if wanted == "auto" else [name.strip() for name in wanted.split(",")]
    unknown = [name for name in names if name not in FINDERS]
    if unknown:
        raise BenchUsageError(f"--peers: no peer is called {unknown[0]}; there are {', '.join(FINDERS)}")
    found = {name: FINDERS[name](where) for name in names}
    missing = [name for name, peer in found.items() if peer is None]
    if missing and wanted != "auto":
        raise BenchUsageError(
            f"--peers: {', '.join(missing)} was not found here\n\nhint: make peers, or --peers-folder"
        )
    if missing:
        tell(f"not found, so not measured: {', '.join(missing)} (hint: make peers)")
    return [peer for peer in found.values() if peer is not None]
