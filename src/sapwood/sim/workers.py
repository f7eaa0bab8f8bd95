"""Independent jobs on all cores, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TypeVar

from sapwood.errors import UsageError
from sapwood.orphans import end_with_parent

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processes(jobs: Sequence[object], workers: int | None) -> int:
    """How many `in_parallel` would use; 1 stands for none but this one."""
    return max(1, min(cores() if workers is None else workers, len(jobs)))


def in_parallel(
    function: Callable[[JobT], ResultT],
    jobs: Sequence[JobT],
    *,
    workers: int | None = None,
    progress: Callable[[str], None] | None = None,
    what: str = "jobs",
) -> list[ResultT]:
    """The results in the order of the jobs, whoever ends first; the first error of a job is raised, and ends all at
    once, as an interrupt does. They end with this process, too, should it be killed. Raises UsageError if one dies.

    Args:
        function, jobs: both can be pickled: a function of a module, or a partial of one.
        workers: processes; None takes one for each core. With one, or one job, all is done in this process.
        progress: is told `what: 3 of 10` as they end.
    """
    count = processes(jobs, workers)
    tell = progress or (lambda _: None)
    if count == 1:
        return [_told(function(job), tell, f"{what}: {n} of {len(jobs)}") for n, job in enumerate(jobs, 1)]
    # Not forked: whoever calls may have threads, of which a fork copies the locks alone.
    with ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), end_with_parent) as pool:
        try:
            with _no_interrupts():
                futures = [pool.submit(function, job) for job in jobs]
            for done, future in enumerate(as_completed(futures), 1):
                future.result()
                tell(f"{what}: {done} of {len(jobs)}")
        except BrokenProcessPool:
            raise UsageError(
                "a worker process died", hint="perhaps memory is short: take fewer with --workers"
            ) from None
        except BaseException:
            _end(pool)
            raise
        return [future.result() for future in futures]


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Processes that begin within never see Ctrl-C, which a terminal sends to all: this one ends them. It comes here
    as the block ends."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with _later():
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _later() -> Iterator[None]:
    """What the mask keeps out of this thread comes in by another, NumPy's for one, and is this one's to handle."""
    come: list[int] = []
    try:
        handler = signal.signal(signal.SIGINT, lambda number, _frame: come.append(number))
    except ValueError:  # This thread handles none: that is the main one's.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        for number in come[:1]:
            signal.raise_signal(number)


def _end(pool: ProcessPoolExecutor) -> None:
    """At once, whatever its processes are doing: nobody wants their results any more."""
    running = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in running:
        process.terminate()


def _told(result: ResultT, tell: Callable[[str], None], text: str) -> ResultT:
    tell(text)
    return result
