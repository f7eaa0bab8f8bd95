from __future__ import annotations

import os

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
