"""Finds stop strings in text that arrives in pieces."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cut:
    """Text that may be shown, and the stop string that ended it, if one did."""

    text: str
    stop: str | None = None


class StopMatcher:
    """Feed pieces, get back what is safe to show: text that may begin a stop string is held back.

    The stop string whose last character comes first wins; of several that end there, the longest. So where
    the pieces were cut makes no difference.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held = ""

    def feed(self, piece: str) -> Cut:
        text = self._held + piece
        ends = [(start + len(stop), start, stop) for stop in self._stops if (start := text.find(stop)) >= 0]
        if ends:
            self._held = ""
            _, start, stop = min(ends)
            return Cut(text[:start], stop)
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return Cut(text[: len(text) - keep])

    def flush(self) -> str:
        """The text held back, when nothing more will come."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins, but is not, `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
