"""What holds for every test: a name that is the same in each worker and run, and no clock that judges it."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes name nothing: a packed file holds the second it was packed in, and two workers then disagree."""
    return argname if isinstance(val, bytes) else None
