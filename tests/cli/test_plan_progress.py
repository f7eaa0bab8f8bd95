"""What one is told while a plan is made, by a clock of the test."""

from __future__ import annotations

import io

import pytest

from sapwood.cli.plan_progress import Log, Pace, rough, waiting
from sapwood.cli.talk import Talk


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def after(self, seconds: float) -> Clock:
        self.now += seconds
        return self


def test_a_count_tells_what_is_left_of_it() -> None:
    clock = Clock()
    pace = Pace(clock)
    assert pace.told("reading: trace.jsonl") == "reading: trace.jsonl"
    clock.after(5)
    assert pace.told("replaying: 1 of 5") == "replaying: 1 of 5, about 20 s left of these, 5 s so far"
    clock.after(10)
    assert pace.told("replaying: 3 of 5") == "replaying: 3 of 5, about 10 s left of these, 15 s so far"
    clock.after(5)
    assert pace.told("replaying: 5 of 5") == "replaying: 5 of 5, 20 s so far"


def test_each_count_has_its_own_pace() -> None:
    clock = Clock()
    pace = Pace(clock)
    clock.after(50)
    pace.told("replaying: 2 of 2")
    clock.after(1)
    assert "left" not in pace.told("simulating: 1 of 2")
    clock.after(100)
    assert "left" not in pace.told("simulating: 2 of 2")
    clock.after(30)
    assert "about 30 s left" in pace.told("simulating: 1 of 2")
    clock.after(3)
    step = "simulating: 1,000 of 2,000 requests, 3 s into the trace"
    assert pace.told(step) == f"{step}, about 3 s left of these, 3 min so far"


def test_what_is_left_of_many_requests_is_read_with_their_commas() -> None:
    clock = Clock()
    pace = Pace(clock)
    clock.after(10)
    assert "about 30 s left" in pace.told("simulating: 1,000 of 4,000 requests, 3 s into the trace")


def test_a_log_has_a_line_for_each_stage_and_then_fewer_and_fewer() -> None:
    clock, lines = Clock(), list[str]()
    log = Log(lines.append, clock)
    log("reading: trace.jsonl")
    for done in range(1, 601):
        clock.after(1)
        log(f"replaying: {done} of 600")
    log("simulating: the last")
    assert lines[:2] == ["reading: trace.jsonl", "replaying: 1 of 600"]
    assert lines[-1] == "simulating: the last, 10 min so far"
    assert 5 < len(lines) < 16
    assert all("left of these" in line and "so far" in line for line in lines[2:-1])


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "1 s"), (7.4, "7 s"), (38, "40 s"), (57, "55 s"), (58, "1 min"), (200, "3 min"), (7300, "2 h")],
)
def test_time_is_told_roughly(seconds: float, said: str) -> None:
    assert rough(seconds) == said


def test_a_terminal_has_one_line_and_a_pipe_whole_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    with waiting(Talk(), "reading") as progress:
        progress("replaying: 1 of 2")
        progress("replaying: 2 of 2")
    assert written.getvalue() == "replaying: 1 of 2\n"
    monkeypatch.setenv("FORCE_COLOR", "1")
    with waiting(Talk(), "reading") as progress:
        progress("replaying: 1 of 2")
    assert "replaying: 1 of 2" in written.getvalue().split("\n", 1)[1]
    assert written.getvalue().endswith("\x1b[2K")  # The line is wiped.
