"""Our own captures as traces."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sapwood.sim.readers.captured_trace import capture_trace
from sim.captured import HEADER, served, source


def test_a_trace_has_the_tokens_of_prompt_and_answer(tmp_path: Path) -> None:
    trace = capture_trace(
        source(
            tmp_path,
            HEADER,
            served("a", 0),
            served("b", 1, tenant="3fa2", outputs=[[1], [2]]),
            served("c", 2, started_step=None),
        )
    )
    assert (trace.unit_tokens, trace.arrivals.tolist()) == (1, [0.0, 1.0])
    assert trace[0].names.tolist() == [5, 6, 7, 8, 9]
    assert (trace[0].prompt_tokens, trace[0].output_tokens, trace[0].known_tokens) == (3, 2, 5)
    assert [trace.scope_names[scope] for scope in trace.scopes] == ["", "3fa2//"]
    assert any("1 request that never began left out" in note for note in trace.notes)
    assert any("of 1 request with several samples" in note for note in trace.notes)


def test_several_runs_follow_one_another_by_the_calendar(tmp_path: Path) -> None:
    later = {**HEADER, "began_at": 1060.5}
    trace = capture_trace(source(tmp_path, HEADER, served("a", 0), later, served("a", 0)))
    assert trace.arrivals.tolist() == [0.0, 60.0]
    assert any("2 runs" in note for note in trace.notes)


def test_what_a_trace_cannot_say_of_requests_is_counted(tmp_path: Path) -> None:
    rows = [served("a", 0, reuse=False), served("b", 1, priority=3, reuse=False), served("c", 2, reuse=True)]
    notes = capture_trace(source(tmp_path, HEADER, *rows)).notes
    assert any(note.startswith("2 requests told to reuse nothing") for note in notes)
    assert any(note.startswith("1 request with a priority") for note in notes)


def test_what_was_done_and_is_not_done_here_is_counted(tmp_path: Path) -> None:
    place = {"step": 0, "after": 0}
    rows: list[Mapping[str, Any]] = [
        {"limited": 1, "quotas": {"3fa2": 64}, **place},
        {"public": [[1], [2, 3]], **place},
        {"pin": "c0", "at": 0.25, "prompt": [1, 2], "held": True, **place},
        {"flush": 0.7, **place},
        served("a", 0, finish=["abort"]),
        served("b", 1, finish=["abort"]),
    ]
    notes = capture_trace(source(tmp_path, HEADER, *rows)).notes
    for said in (
        "2 requests aborted",
        "1 prompts were to be pinned",
        "1 times prefixes were published",
        "1 times tenants were given quotas",
        "1 times the cache was emptied",
    ):
        assert any(note.startswith(said) for note in notes)


def test_what_is_missing_of_a_run_is_told(tmp_path: Path) -> None:
    rows = source(tmp_path, HEADER, served("a", 0), {"lost": 3})
    assert any("lines are missing" in note for note in capture_trace(rows).notes)
    rows.path.write_text(rows.path.read_text() + json.dumps(served("b", 1))[:40])
    assert any("was cut" in note for note in capture_trace(rows).notes)


def test_a_request_with_an_empty_prompt_is_left_out(tmp_path: Path) -> None:
    trace = capture_trace(source(tmp_path, HEADER, served("a", 0, prompt=[]), served("b", 1)))
    assert trace.prompt_tokens.tolist() == [3]
    assert "1 request with an empty prompt left out" in trace.notes
