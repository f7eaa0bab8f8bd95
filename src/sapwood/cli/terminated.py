"""SIGTERM for a verb whose work has processes of its own: it is told as Ctrl-C is, so that these end too."""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import ParamSpec, TypeVar

ArgumentsT = ParamSpec("ArgumentsT")
ResultT = TypeVar("ResultT")


class Terminated(KeyboardInterrupt):
    """SIGTERM came."""


def told_of_termination(verb: Callable[ArgumentsT, ResultT]) -> Callable[ArgumentsT, ResultT]:
    """`verb` raises Terminated where SIGTERM comes as it runs. In other threads than the first nothing changes."""

    @functools.wraps(verb)
    def called(*arguments: ArgumentsT.args, **options: ArgumentsT.kwargs) -> ResultT:
        if threading.current_thread() is not threading.main_thread():
            return verb(*arguments, **options)
        before = signal.signal(signal.SIGTERM, _terminate)
        try:
            return verb(*arguments, **options)
        finally:
            signal.signal(signal.SIGTERM, before)

    return called


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise Terminated
