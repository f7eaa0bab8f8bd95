"""What comes through a pipe: read once, and kept in a file for as long as it is looked at."""

from __future__ import annotations

import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from sapwood.errors import UsageError
from sapwood.sim.readers.source import Source

STDIN = Path("-")


@contextmanager
def source_at(path: Path) -> Iterator[Source]:
    """A file, a pipe, or `-`, which is stdin. Raises UsageError for a pipe that cannot be read or kept."""
    if path == STDIN:
        with _kept(sys.stdin.buffer, "stdin") as source:
            yield source
    elif _is_pipe(path):
        with _opened(path) as pipe, _kept(pipe, str(path)) as source:
            yield source
    else:
        yield Source(path)


@contextmanager
def _kept(pipe: IO[bytes], called: str) -> Iterator[Source]:
    with TemporaryDirectory(prefix="sapwood-") as folder:
        copy = Path(folder, Path(called).name)
        try:
            with copy.open("wb") as file:
                shutil.copyfileobj(pipe, file, 2**20)
        except OSError as error:
            raise UsageError(
                f"what comes from {called} cannot be kept in {folder}: {error.strerror}",
                hint="write it to a file where there is room, and give that",
            ) from None
        yield Source(copy, called)


def _opened(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def _is_pipe(path: Path) -> bool:
    try:
        return stat.S_ISFIFO(path.stat().st_mode)
    except OSError:
        return False
