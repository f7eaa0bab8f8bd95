from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from sapwood.errors import UsageError
from sapwood.sim.workers import cores, in_parallel, processes


def square(number: int) -> tuple[int, int]:
    if number < 0:
        raise UsageError(f"{number} is below 0", hint="take another")
    return number * number, os.getpid()


def test_results_come_in_the_order_of_the_jobs_from_other_processes() -> None:
    told: list[str] = []
    results = in_parallel(square, [3, 1, 2], workers=2, progress=told.append, what="squares")
    assert [result for result, _ in results] == [9, 1, 4]
    assert os.getpid() not in {process for _, process in results}
    assert told == ["squares: 1 of 3", "squares: 2 of 3", "squares: 3 of 3"]


def test_an_error_of_a_job_is_the_callers() -> None:
    with pytest.raises(UsageError, match="-1 is below 0"):
        in_parallel(square, [1, -1, 2], workers=2)


def test_one_worker_or_one_job_is_done_here() -> None:
    told: list[str] = []
    assert in_parallel(square, [2, 3], workers=1, progress=told.append) == [
        (4, os.getpid()),
        (9, os.getpid()),
    ]
    assert told == ["jobs: 1 of 2", "jobs: 2 of 2"]
    assert in_parallel(square, [5]) == [(25, os.getpid())]
    assert in_parallel(square, []) == []


def test_no_more_processes_than_jobs_or_cores() -> None:
    assert processes([1, 2, 3], 2) == 2
    assert processes([1], 4) == processes([], None) == 1
    assert processes(range(1000), None) == cores() >= 1


CALLER = """
import time
from sapwood.sim.workers import in_parallel
try:
    in_parallel(time.sleep, JOBS, workers=2, progress=lambda text: print(text, flush=True))
except BaseException as error:
    print(type(error).__name__, flush=True)
"""


def begun(jobs: str) -> subprocess.Popen[str]:
    """Of a group of its own, as a shell would start it."""
    return subprocess.Popen(
        [sys.executable, "-c", CALLER.replace("JOBS", jobs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def last_words(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Both streams up to their ends: nobody holds them open any more."""
    try:
        return process.communicate(timeout=45)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise


def test_ctrl_c_ends_all_processes_soon_and_in_silence() -> None:
    process = begun("[0, 0, 600, 600]")
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["jobs: 1 of 4\n", "jobs: 2 of 4\n"]
    os.killpg(process.pid, signal.SIGINT)
    assert last_words(process) == ("KeyboardInterrupt\n", "")


def test_ctrl_c_while_processes_begin_is_not_lost() -> None:
    process = begun("[600] * 50 if not print('begins', flush=True) else []")
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    os.killpg(process.pid, signal.SIGINT)
    assert last_words(process) == ("KeyboardInterrupt\n", "")


def test_ctrl_c_that_another_thread_takes_waits_as_well() -> None:
    """NumPy's threads let it in. An interrupted start leaves a process that reads from a closed pipe, aloud."""
    code = """
import signal, threading, time
from sapwood.sim.workers import _no_interrupts
other = threading.Thread(target=time.sleep, args=(60,), daemon=True)
other.start()
try:
    with _no_interrupts():
        signal.pthread_kill(other.ident, signal.SIGINT)
        time.sleep(0.1)
        print("whole")
except KeyboardInterrupt:
    print("then ended")
"""
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=45,
        check=True,
    )
    assert (ended.stdout, ended.stderr) == ("whole\nthen ended\n", "")


def test_an_error_does_not_wait_for_the_other_processes() -> None:
    assert last_words(begun("[600, -1, *[600] * 20]")) == ("ValueError\n", "")


def test_processes_end_when_the_caller_is_killed() -> None:
    process = begun("[0.01, 600.0, 600.0]")
    assert process.stdout is not None
    assert process.stdout.readline() == "jobs: 1 of 3\n"
    process.kill()
    assert last_words(process)[0] == ""
