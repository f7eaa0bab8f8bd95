"""What `sapwood plan CAPTURE` need not be told: how the server that wrote the capture was set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sapwood.errors import UsageError
from sapwood.sim import KNOWN_MODELS, Source, header_of


@dataclass(frozen=True, slots=True)
class Served:
    """By a server. What is None, nobody has told.

    Attributes:
        model: a name that `--model-shape` knows.
        other: that of a model whose shape is not known here.
        chunk_tokens, max_running: as in `SchedulerConfig`.
    """

    model: str | None = None
    other: str | None = None
    chunk_tokens: int | None = None
    max_running: int | None = None

    def notes(self, flags: Mapping[str, object]) -> Iterator[str]:
        """What was taken from the capture, and what could not be: of these flags, those that nobody gave."""
        known = {
            "--model-shape": self.model,
            "--chunk-tokens": self.chunk_tokens,
            "--max-running": self.max_running,
        }
        taken = [
            f"{flag} {value}" for flag, value in known.items() if value is not None and flags[flag] is None
        ]
        if taken:
            yield f"as the captured server was set: {', '.join(taken)}"
        if self.other is not None and flags["--model-shape"] is None:
            yield f"the captured model, {self.other}, has no shape that is known here: give --model-shape"
        if self.known and all(flags[flag] is None for flag in ("--hardware", "--memory", "--cost")):
            yield "what the captured server ran on is not written down: give --hardware, or its times by --cost CAPTURE"

    @property
    def known(self) -> bool:
        """Whether it was a capture."""
        return self != Served()


def served_by(trace: Path) -> Served:
    """Of the first run in a capture; nothing is known of any other file, of one that cannot be read, or of a pipe."""
    try:
        # What comes through a pipe is read once.
        header = header_of(Source(trace)) if trace.is_file() else None
    except (OSError, UsageError):
        return Served()
    if header is None:
        return Served()
    name, told = str(header.fields.get("model")), header.fields.get("scheduler")
    scheduler: dict[str, Any] = told if isinstance(told, dict) else {}
    model = name if name in KNOWN_MODELS else None
    return Served(
        model,
        None if model else name,
        _whole(scheduler.get("chunk_tokens")),
        _whole(scheduler.get("max_running")),
    )


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= 1 else None
