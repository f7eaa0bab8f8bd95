"""A trace in a folder, for other processes: they map its columns instead of copying them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import numpy as np

from sapwood.sim.trace import Trace
from sapwood.sim.workers import in_parallel, processes

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")

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


def over_trace(
    function: Callable[[Trace, JobT], ResultT],
    trace: Trace,
    jobs: Sequence[JobT],
    *,
    workers: int | None = None,
    progress: Callable[[str], None] | None = None,
    what: str = "jobs",
) -> list[ResultT]:
    """`in_parallel`, of jobs that are all about one trace, which processes share."""
    run = partial(in_parallel, jobs=jobs, workers=workers, progress=progress, what=what)
    if processes(jobs, workers) == 1:
        return run(partial(function, trace))
    with TemporaryDirectory(prefix="sapwood-sim-") as name:
        store(trace, Path(name))
        return run(partial(_of_stored, function, Path(name)))


def _of_stored(function: Callable[[Trace, JobT], ResultT], folder: Path, job: JobT) -> ResultT:
    return function(load_stored(folder), job)


def store(trace: Trace, folder: Path) -> None:
    """One file for each column, and one for the rest. The folder is there, and its files are replaced."""
    for column in _COLUMNS:
        np.save(folder / f"{column}.npy", getattr(trace, column))
    about = {
        name: getattr(trace, name) for name in ("name", "unit_tokens", "scope_names", "notes", "assumed")
    }
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
        assumed=tuple(about["assumed"]),
        **columns,
    )
