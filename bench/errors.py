"""The one error a bench run ends with: what was wrong, what was expected."""

from __future__ import annotations


class BenchError(Exception):
    """A server did not start or answered something else than expected, or a file or flag is wrong."""
