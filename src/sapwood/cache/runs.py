"""An int32 array that grows and shrinks at its end: the edges of the tree and the page tables of leases."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SLACK = 16
"""Elements that a run may hold beyond twice its size."""


class IntRun:
    """A one-dimensional int32 array with cheap appends (amortised) and cheap cuts at the end.

    It owns its memory and holds at most 2·size + SLACK elements: a short run never keeps a long array alive.
    """

    __slots__ = ("_buffer", "size")

    def __init__(self, values: NDArray[np.int32]) -> None:
        self._buffer = np.array(values, dtype=np.int32)
        self.size = len(values)

    @classmethod
    def owning(cls, buffer: NDArray[np.int32]) -> IntRun:
        """Of an array that nobody else uses from now on: no copy is made."""
        run = cls.__new__(cls)
        run._buffer, run.size = buffer, len(buffer)
        return run

    @classmethod
    def joined(cls, parts: Sequence[IntRun]) -> IntRun:
        return cls.owning(np.concatenate([part.view for part in parts]))

    @property
    def view(self) -> NDArray[np.int32]:
        """The elements; valid until the next call that changes the run."""
        return self._buffer[: self.size]

    @property
    def capacity(self) -> int:
        """Elements for which memory is held."""
        owner = self._buffer.base
        return len(self._buffer) if owner is None else owner.size

    def append(self, values: NDArray[np.int32]) -> None:
        start, end = self.size, self.size + len(values)
        if end > len(self._buffer):
            self._move_to(end + end // 2)
        self._buffer[start:end] = values
        self.size = end

    def cut(self, count: int) -> NDArray[np.int32]:
        """Take the last `count` elements off and return them."""
        left = self.size - count
        if not left:
            whole, self._buffer, self.size = self.view, np.empty(0, np.int32), 0
            return whole
        tail = self._buffer[left : self.size].copy()
        self.size = left
        if len(self._buffer) > 2 * left + SLACK:
            self._move_to(left)
        return tail

    def cut_head(self, count: int) -> IntRun:
        """Take the first `count` elements off and return them as a run of their own."""
        head = IntRun(self._buffer[:count])
        self._buffer = self._buffer[count : self.size].copy()
        self.size -= count
        return head

    def _move_to(self, capacity: int) -> None:
        buffer = np.empty(capacity, dtype=np.int32)
        buffer[: self.size] = self._buffer[: self.size]
        self._buffer = buffer
