"""What a step costs by its rows: measured on those that were run, between these on a line, beyond on a flatter one."""

from __future__ import annotations

from bisect import bisect_left, insort

_FALLS, _RISES = 0.3, 0.05
"""How fast an estimate follows what it sees: something else that took the processor only ever makes a step slower."""

_MOST_WRONG = 2.0
"""What is seen first is believed up to so many times what was expected."""

_UNKNOWN_SLOPE = 0.25
"""Before two sizes are known: twice the rows cost so much more. Hopeful, as only what is tried is measured."""

_BEYOND = 0.5
"""Beyond what was seen a row is taken to cost so much of those before: where rows become cheaper, eight sequences would
else never have a first draft."""

_REMEMBERED = 1024
"""Steps after which a size that did not come up again is forgotten, so that one slow step is not held against it."""

_FEW_ROWS = 32

_LEAST = 1e-9
"""No step is faster: it was not measured."""


class StepCost:
    """Of steps in which every row is drawn from. Seconds of the caller's clock."""

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._seconds: dict[int, float] = {}
        self._seen_at: dict[int, int] = {}
        self._steps = 0

    def saw(self, rows: int, seconds: float) -> None:
        """A step of so many rows took so long."""
        if seconds < _LEAST:
            return
        size = _size(rows)
        self._steps += 1
        self._seen_at[size] = self._steps
        known = self._seconds.get(size)
        if known is None:
            expected = self.seconds(size) if self._sizes else seconds
            self._seconds[size] = min(seconds, _MOST_WRONG * expected)
            insort(self._sizes, size)
        else:
            self._seconds[size] += (_FALLS if seconds < known else _RISES) * (seconds - known)
        if self._steps % _REMEMBERED == 0:
            self._forget()

    def seconds(self, rows: int) -> float:
        """What so many rows will take; in arbitrary units as long as nothing was seen."""
        sizes, seconds, size = self._sizes, self._seconds, _size(rows)
        known = seconds.get(size)
        if known is not None:
            return known
        if not sizes:
            return 1 + _UNKNOWN_SLOPE * (size - 1)
        low, high = sizes[0], sizes[-1]
        if low == high:
            return seconds[low] * max(_UNKNOWN_SLOPE, 1 + _UNKNOWN_SLOPE * (size - low) / low)
        if low < size < high:
            at = bisect_left(sizes, size)
            low, high = sizes[at - 1], sizes[at]
        slope = max(0.0, seconds[high] - seconds[low]) / (high - low)
        slope *= _BEYOND if size > high else 1
        nearest = low if size < high else high
        return max(seconds[nearest] + slope * (size - nearest), 0.1 * seconds[nearest])

    def _forget(self) -> None:
        for size in [s for s in self._sizes if self._seen_at[s] <= self._steps - _REMEMBERED]:
            del self._seconds[size], self._seen_at[size]
            self._sizes.remove(size)


def _size(rows: int) -> int:
    """Sizes that are told apart: each of the first few, then by eights."""
    return rows if rows <= _FEW_ROWS else -(-rows // 8) * 8
