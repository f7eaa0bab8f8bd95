"""What a peer is: a kind of server that is installed here, and the settings in which it may be at its best."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..needs import Needs
from ..processes import Launch
from .weights import Weights


@dataclass(frozen=True, slots=True)
class Where:
    """Where peers are looked for.

    Attributes:
        folder: has a virtual environment for each, as `make peers` makes them.
        llama_server: the program, if it was named.
    """

    folder: Path
    llama_server: str | None = None

    @staticmethod
    def default_folder() -> Path:
        """`SAPWOOD_PEERS`, else `.venv/peers`."""
        return Path(os.environ.get("SAPWOOD_PEERS", ".venv/peers"))

    def python(self, name: str) -> Path | None:
        """The interpreter of a peer's own environment."""
        found = self.folder.absolute() / name / "bin" / "python"
        return found if found.exists() else None


@dataclass(frozen=True, slots=True)
class Setup:
    """What all servers are started with."""

    weights: Weights
    threads: int


class Peer(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def floor(self) -> bool:
        """A floor is measured in the short cases alone, unless the run is a full one."""
        ...

    def launches(self, setup: Setup, needs: Needs) -> Sequence[Launch]:
        """Its settings for such a case, the usual one first; none where it cannot do it. Raises BenchError."""
        ...


def installed(python: Path, package: str) -> str | None:
    """The version of a package in another interpreter's environment, from its folder's name."""
    stem = package.replace("-", "_")
    for folder in sorted(python.parent.parent.glob(f"lib/python*/site-packages/{stem}-*.dist-info")):
        return folder.name.removesuffix(".dist-info").partition("-")[2]
    return None
