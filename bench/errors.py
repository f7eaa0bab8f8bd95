"""The errors a bench run ends with: what was wrong, what was expected."""

from __future__ import annotations


class BenchError(Exception):
    """A server did not start or answered something else than expected, or a file cannot be read. Exit status 1."""


class BenchUsageError(BenchError):
    """A flag must be changed. Exit status 2."""


class StatusError(BenchError):
    """A server answered with an HTTP status other than 2xx."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status
