"""The request traces that come along, in Mooncake's format (FAST 2025), and others that `bench cache` is given."""

from __future__ import annotations

from pathlib import Path

from sapwood.errors import UsageError
from sapwood.sim import Trace, read_trace

from .errors import BenchError

BUNDLED = tuple(
    Path(__file__).parent / "data" / "mooncake" / f"{name}_trace.jsonl.gz"
    for name in ("conversation", "synthetic")
)


def load_trace(file: Path) -> Trace:
    """Of any format that `sapwood plan` reads. Raises BenchError for a file that is no trace."""
    try:
        return read_trace(file)
    except UsageError as error:
        raise BenchError(str(error)) from error
