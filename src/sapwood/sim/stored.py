"""A trace in a folder, for other processes: they map its columns instead of copying them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from sapwood.sim.trace import Trace

_COLUMNS = (
    "arrivals",
    "prompt_tokens",
    "output_tokens",
    "known_tokens",
    "sessions",
    "scopes",
    "names",
    "offsets",
)


def store(trace: Trace, folder: Path) -> None:
    """One file for each column, and one for the rest. The folder is there, and its files are replaced."""
    for column in _COLUMNS:
        np.save(folder / f"{column}.npy", getattr(trace, column))
    about = {name: getattr(trace, name) for name in ("name", "unit_tokens", "scope_names", "notes")}
    (folder / "about.json").write_text(json.dumps(about))


def load_stored(folder: Path) -> Trace:
    """Read-only columns, read as they are needed."""
    about = json.loads((folder / "about.json").read_text())
    # As plain arrays: slices of a memmap are several times as slow.
    columns = {column: np.asarray(np.load(folder / f"{column}.npy", mmap_mode="r")) for column in _COLUMNS}
    return Trace(
        name=about["name"],
        unit_tokens=about["unit_tokens"],
        scope_names=tuple(about["scope_names"]),
        notes=tuple(about["notes"]),
        **columns,
    )
