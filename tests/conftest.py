"""What every test's name must be: the same in each worker and in each run."""

from __future__ import annotations


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes name nothing: a packed file holds the second it was packed in, and two workers then disagree."""
    return argname if isinstance(val, bytes) else None
