"""Our own captures, as the engine writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sapwood.errors import UsageError
from sapwood.sim.readers.capture import StepTimes, is_capture, read_capture
from sapwood.sim.readers.captured_deeds import (
    CapturedScope,
    Flush,
    Left,
    Limit,
    PinTried,
    Place,
    Publish,
    Unpin,
)
from sim.captured import HEADER, served, source


def test_a_run_is_in_the_order_in_which_it_was_admitted(tmp_path: Path) -> None:
    rows = [
        HEADER,
        {"steps": 0, "began": [0.0, 0.5], "ended": [0.4, None]},
        served("late", 1),
        {"flush": 0.7, "step": 2},
        {"steps": 2, "began": [0.9], "ended": [1.5]},
        served("soon", 0, started_step=None),
    ]
    (run,) = read_capture(source(tmp_path, *rows))
    assert [request.id for request in run.requests] == ["soon", "late"]
    assert run.steps == [StepTimes(0.0, 0.4), StepTimes(0.5, None), StepTimes(0.9, 1.5)]
    assert run.deeds == [Flush(Place(2))]
    assert (run.requests[1].prompt.tolist(), run.requests[1].outputs[0].tolist()) == ([5, 6, 7], [8, 9])
    assert (run.requests[0].started_step, run.requests[1].reused) == (None, 2)
    assert run.gaps == []


def test_what_was_done_between_two_steps_is_in_the_order_in_which_it_was_done(tmp_path: Path) -> None:
    prompt = {"tenant": "3fa2", "adapter": "", "salt": "", "prompt": [1, 2]}
    rows = [
        {"limited": 1, "quotas": {"3fa2": 64}, "step": 0, "after": 0},
        {"public": [[1], [2, 3]], "step": 0, "after": 0},
        {"pin": "c0", "at": 0.25, **prompt, "held": True, "step": 1, "after": 1},
        served("a", 0, finish=["abort"], ended_after=1),
        served("b", 1, finish=["abort"]),
        {"unpin": "c0", "step": 4, "after": 2},
    ]
    (run,) = read_capture(source(tmp_path, HEADER, *rows))
    limit, publish, pin, first, second, unpin = run.deeds
    assert isinstance(limit, Limit)
    assert (limit.place, limit.quotas) == (Place(0, 0), {"3fa2": 64})
    assert isinstance(publish, Publish)
    assert [tokens.tolist() for tokens in publish.prefixes] == [[1], [2, 3]]
    assert isinstance(pin, PinTried)
    assert (pin.place, pin.id, pin.scope, pin.at, pin.held) == (
        Place(1, 1),
        "c0",
        CapturedScope("3fa2"),
        0.25,
        True,
    )
    assert pin.prompt.tolist() == [1, 2]
    assert (first, second, unpin) == (Left(Place(3, 1), 0), Left(Place(4, None), 1), Unpin(Place(4, 2), "c0"))
    assert run.gaps == []


@pytest.mark.parametrize(
    ("row", "gap"),
    [
        ({"held": 64, "step": 0}, "pins or public prefixes"),
        ({"lost": 3}, "lines are missing"),
        ({"limited": 2, "step": 0}, "quotas"),
        ({"steps": 7, "began": [], "ended": []}, "the clock of some steps"),
        (served("x", 4), "had not ended"),
    ],
)
def test_what_cannot_be_done_again_is_told(row: Mapping[str, Any], gap: str, tmp_path: Path) -> None:
    (run,) = read_capture(source(tmp_path, HEADER, served("a", 0), row))
    assert [gap in each for each in run.gaps] == [True]


def test_a_line_that_was_cut_as_the_server_died_is_left_out(tmp_path: Path) -> None:
    whole = source(tmp_path, HEADER, served("a", 0))
    whole.path.write_text(whole.path.read_text() + json.dumps(served("b", 1))[:40])
    (run,) = read_capture(whole)
    assert [request.id for request in run.requests] == ["a"]
    assert ["was cut" in gap for gap in run.gaps] == [True]


@pytest.mark.parametrize("after", [HEADER, {"lost": 1}])
@pytest.mark.parametrize("times", [1, 2])
def test_a_line_that_was_cut_before_the_writer_began_again_is_left_out(
    after: Mapping[str, Any], times: int, tmp_path: Path
) -> None:
    rows = source(tmp_path, HEADER, served("a", 0))
    cut = (json.dumps(served("b", 1))[:40] + "\n") * times
    rest = "".join(json.dumps(row) + "\n" for row in (after, served("c", 0)))
    rows.path.write_text(rows.path.read_text() + cut + rest)
    runs = read_capture(rows)
    assert [request.id for run in runs for request in run.requests] == ["a", "c"]
    assert any("was cut" in gap for gap in runs[0].gaps)


def test_a_line_that_was_cut_elsewhere_is_told(tmp_path: Path) -> None:
    rows = source(tmp_path, HEADER)
    rows.path.write_text(rows.path.read_text() + '{"request": "b", \n' + json.dumps(served("a", 0)) + "\n")
    with pytest.raises(UsageError, match="line 2 is no JSON"):
        read_capture(rows)


def test_tokens_are_kept_once(tmp_path: Path) -> None:
    (run,) = read_capture(source(tmp_path, HEADER, served("a", 0)))
    assert {"prompt", "outputs"}.isdisjoint(run.requests[0].row.fields)
    assert run.requests[0].row.fields["reused"] == 2


def test_a_capture_is_known_by_what_is_in_it(tmp_path: Path) -> None:
    assert is_capture(source(tmp_path, HEADER))
    assert not is_capture(source(tmp_path, {"rows": []}))
    torn = source(tmp_path, HEADER)
    torn.path.write_text('{"capt\n' + torn.path.read_text())
    assert is_capture(torn)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([served("a", 0)], "line 1 comes before"),
        ([{**HEADER, "version": 2}], "'version' is 2; 1, which is all"),
        ([HEADER, served("a", 0, prompt="x")], "line 2: 'prompt' is \"x\"; a list"),
        ([HEADER, served("a", 0, prompt=["x"])], "line 2: 'prompt' is [\"x\"]; token ids"),
        ([HEADER, served("a", 0, prompt=[1.5, 2])], "line 2: 'prompt' is [1.5, 2]; token ids"),
        (
            [HEADER, served("a", 0, prompt=[[1, 2], [3, 4]])],
            "line 2: 'prompt' is [[1, 2], [3, 4]]; token ids",
        ),
        ([HEADER, served("a", 0, prompt=[True, False])], "line 2: 'prompt' is [true, false]; token ids"),
        ([HEADER, served("a", 0, prompt=[-1])], "line 2: 'prompt' is [-1]; token ids"),
        ([HEADER, served("a", 0, outputs=[None, 3])], "line 2: 'outputs' is [null, 3]; token ids"),
        ([HEADER, served("a", 0, arrival=1e300)], "line 2: 'arrival' is 1e+300; a number"),
        ([HEADER, served("a", 0, step=None)], "line 2: 'step' is null"),
        ([HEADER, {"flush": "x", "step": 0}], "'flush' is \"x\"; a number"),
        ([HEADER, {"pin": "a", "held": 1}], "'held' is 1; true or false"),
        ([HEADER, {"pin": "a", "held": True, "prompt": ["x"]}], "'prompt' is [\"x\"]; token ids"),
        ([HEADER, {"public": [1, "x"], "step": 0}], "'public' is [1, \"x\"]; token ids"),
        ([HEADER, {"limited": 1, "quotas": {"a": "x"}, "step": 0}], "'quotas' is"),
        ([HEADER, {"unpin": "a", "step": 0, "after": "x"}], "'after' is \"x\"; a whole number"),
        ([HEADER, {"steps": 0, "began": [1], "ended": []}], "'ended' is []; a list of 1"),
        ([HEADER, {"steps": 0, "began": ["x"], "ended": [1]}], "'began' is [\"x\"]; a list of seconds"),
    ],
)
def test_a_line_that_is_none_is_told(rows: list[Mapping[str, Any]], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_capture(source(tmp_path, *rows, HEADER))
    assert said in str(caught.value)
