"""What holds for every test: a name that is the same in each worker and run, and no clock that judges it."""

from __future__ import annotations

import signal

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it puts in the background so, and what tests start would inherit it: no Ctrl-C would end it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes name nothing: a packed file holds the second it was packed in, and two workers then disagree."""
    return argname if isinstance(val, bytes) else None
