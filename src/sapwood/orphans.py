"""A process that does not outlive the one that began it, however that one ended."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.process import BaseProcess
from threading import Thread


def end_with_parent() -> None:
    """From now on this process, one of `multiprocessing`, ends at once when its parent is no more."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        Thread(target=_end_after, args=[parent], daemon=True).start()


def _end_after(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)
