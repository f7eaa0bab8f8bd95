"""Appends lines to a file from a thread of its own: whoever has something to write never waits for a disk."""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sapwood.errors import UsageError

_log = logging.getLogger("sapwood.engine")

MOST_WAITING = 4096
"""Lines that may wait for the disk; what comes beyond them is counted and lost."""

_FLUSH_SECONDS = 5.0
"""How long `close` waits for a disk."""


class LineFile:
    """A file that only its owner reads (mode 0600), with one JSON object per line, each flushed as it is written.

    When it cannot be written any more that is logged once, and the rest is dropped.

    Args:
        path: made if it is not there, else appended to. Raises UsageError if it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: queue.Queue[Mapping[str, Any] | None] = queue.Queue(MOST_WAITING)
        self._lost = 0
        self._broken = False
        self._descriptor = _open(path)
        self._thread = threading.Thread(target=self._run, name="sapwood-lines", daemon=True)
        self._thread.start()

    def write(self, line: Mapping[str, Any]) -> None:
        """Returns at once. The object must not change any more. One caller at a time."""
        try:
            if self._lost:
                self._waiting.put_nowait({"lost": self._lost})
                self._lost = 0
            self._waiting.put_nowait(line)
        except queue.Full:
            self._tell_once(f"{self._path} is written too slowly; what does not fit is left out")
            self._lost += 1

    def close(self) -> None:
        """Write what waits, for a few seconds at most. A second time it does nothing."""
        if not self._thread.is_alive():
            return
        try:
            self._waiting.put(None, timeout=_FLUSH_SECONDS)
            self._thread.join(_FLUSH_SECONDS)
        except queue.Full:
            _log.warning("%s could not be written to its end", self._path)

    def _run(self) -> None:
        with os.fdopen(self._descriptor, "wb", buffering=0) as file:
            while (line := self._waiting.get()) is not None:
                if not self._broken:
                    self._append(file.fileno(), json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def _append(self, descriptor: int, line: bytes) -> None:
        try:
            while line:
                line = line[os.write(descriptor, line) :]
        except OSError as error:
            self._broken = True
            _log.error("%s cannot be written any more: %s", self._path, error.strerror or error)

    def _tell_once(self, what: str) -> None:
        if not self._lost:
            _log.warning("%s", what)


def _open(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}", hint="name a file in a folder that is there"
        ) from None
    if not os.path.samestat(os.fstat(descriptor), os.stat(os.devnull)):
        os.fchmod(descriptor, 0o600)  # One that was there before may have been open to others.
    return descriptor
