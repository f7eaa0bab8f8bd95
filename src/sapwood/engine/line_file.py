"""Appends lines to a file from a thread of its own: whoever has something to write never waits for a disk."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import queue
import stat
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sapwood.errors import UsageError

_log = logging.getLogger("sapwood.engine")

MOST_WAITING = 4096
"""Lines that may wait for the disk; what comes beyond them is counted and lost."""

MOST_WAITING_BYTES = 64 * 2**20
"""The same, by memory. A line that is larger may wait alone."""

RETRY_SECONDS = 10.0
"""After a disk took nothing, until it is tried again."""

_FLUSH_SECONDS = 5.0
"""How long `close` waits for a disk."""

_BYTES_A_VALUE = 36
"""An int and its place in a list."""

_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
"""What file systems say that have none, as some of networks."""


class LineFile:
    """A file that only its owner reads (mode 0600), with one JSON object per line, each flushed as it is written.

    While it cannot be written, lines are lost; that is logged once, and how many is the next line that it takes. A
    line that was cut, now or by whoever wrote before, stays as it is and is ended.

    Args:
        path: made if it is not there, else appended to. Raises UsageError if it cannot be opened, or is being
            written by another process.
        clock: seconds that only rise.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._waiting: queue.Queue[Mapping[str, Any] | None] = queue.Queue(MOST_WAITING)
        self._put_bytes = self._taken_bytes = 0  # Each is changed by one thread alone.
        self._full = self._failed = 0  # And these; lines, so far.
        self._lost = 0
        self._unwritten = 0
        self._told_broken = self._told_odd = False
        self._retry_at: float | None = None
        self._descriptor = _open(path)
        self._torn = _is_torn(self._descriptor, path)
        self._thread = threading.Thread(target=self._run, name="sapwood-lines", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> int:
        """Lines that were not written and will not be, so far. From any thread."""
        return self._full + self._failed

    def write(self, line: Mapping[str, Any]) -> None:
        """Returns at once. The object must not change any more. One caller at a time."""
        size = _size(line)
        waiting = self._put_bytes - self._taken_bytes
        try:
            if waiting and waiting + size > MOST_WAITING_BYTES:
                raise queue.Full
            if self._lost:
                self._waiting.put_nowait({"lost": self._lost})
                self._lost = 0
            self._waiting.put_nowait(line)
            self._put_bytes += size
        except queue.Full:
            self._tell_once(f"{self._path} is written too slowly; what does not fit is left out")
            self._lost += 1
            self._full += 1

    def close(self) -> None:
        """Write what waits, for a few seconds at most. A second time it does nothing."""
        if not self._thread.is_alive():
            return
        try:
            if self._lost:
                self._waiting.put({"lost": self._lost}, timeout=_FLUSH_SECONDS)
                self._lost = 0
            self._waiting.put(None, timeout=_FLUSH_SECONDS)
            self._thread.join(_FLUSH_SECONDS)
        except queue.Full:
            pass
        if self._thread.is_alive():
            _log.warning("%s could not be written to its end", self._path)

    # ---- in the thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        with os.fdopen(self._descriptor, "wb", buffering=0):
            while (line := self._waiting.get()) is not None:
                self._take(line)
                self._taken_bytes += 0 if "lost" in line else _size(line)
            if self._unwritten:
                self._append(b"")

    def _take(self, line: Mapping[str, Any]) -> None:
        try:
            data = _encoded(line)
        except Exception as error:  # Whatever is wrong with one line, the others are to be written.
            self._give_up(line)
            if not self._told_odd:
                _log.error("a line of %s cannot be written, and is left out: %r", self._path, error)
            self._told_odd = True
            return
        if (self._retry_at is not None and self._clock() < self._retry_at) or not self._append(data):
            self._give_up(line)

    def _give_up(self, line: Mapping[str, Any]) -> None:
        told = "lost" in line  # What this one tells of is counted already.
        self._unwritten += line["lost"] if told else 1
        self._failed += 0 if told else 1

    def _append(self, data: bytes) -> bool:
        """Whether it is written; before it, what had to be said."""
        try:
            if self._is_removed:
                raise OSError(errno.ENOENT, "it was removed, and is made again with the next start")
            if self._torn:
                self._write(b"\n")
            if self._unwritten:
                self._write(_encoded({"lost": self._unwritten}))
                self._unwritten = 0
            self._write(data)
        except OSError as error:
            self._retry_at = self._clock() + RETRY_SECONDS
            if not self._told_broken:
                what = "%s cannot be written: %s; lines are lost until it can be"
                _log.error(what, self._path, error.strerror or error)
            self._told_broken = True
            return False
        if self._retry_at is not None:
            _log.warning("%s can be written again", self._path)
        self._retry_at, self._told_broken = None, False
        return True

    @property
    def _is_removed(self) -> bool:
        """One that was renamed is still the same, and has its beginning."""
        about = os.fstat(self._descriptor)
        return stat.S_ISREG(about.st_mode) and not about.st_nlink

    def _write(self, data: bytes) -> None:
        while data:
            written = os.write(self._descriptor, data)
            self._torn = data[written - 1 : written] != b"\n"
            data = data[written:]

    def _tell_once(self, what: str) -> None:
        if not self._lost:
            _log.warning("%s", what)


def _encoded(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def _size(value: object) -> int:
    """Bytes of memory, about, as far as lists and texts go."""
    if isinstance(value, Mapping):
        return sum(map(_size, value.values())) + _BYTES_A_VALUE
    if isinstance(value, str):
        return len(value) + _BYTES_A_VALUE
    if not isinstance(value, list | tuple) or not value:
        return _BYTES_A_VALUE
    inner = sum(map(_size, value)) if isinstance(value[0], list | tuple | str | Mapping) else 0
    return inner + len(value) * _BYTES_A_VALUE


def _open(path: Path) -> int:
    # A pipe that nobody reads would be waited for without an end: such a one is refused.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise _cannot(path, error) from None
    try:
        os.set_blocking(descriptor, True)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            _lock(descriptor, path)
            os.fchmod(descriptor, 0o600)  # One that was there before may have been open to others.
    except BlockingIOError:
        os.close(descriptor)
        raise UsageError(
            f"{path} is being written by another", hint="give each server a file of its own"
        ) from None
    except OSError as error:
        os.close(descriptor)
        raise _cannot(path, error) from None
    return descriptor


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        _log.warning(
            "%s cannot be locked, as its file system has no locks: let no other server write it", path
        )


def _is_torn(descriptor: int, path: Path) -> bool:
    """Whether the last line has no end, as its writer died in the midst of it."""
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or not about.st_size:
        return False
    try:
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except OSError as error:
        os.close(descriptor)
        raise _cannot(path, error) from None


def _cannot(path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"cannot write {path}: {error.strerror or error}",
        hint="name a file of your own in a folder that is there, or a pipe that is being read",
    )
