"""What a capture says of the server that wrote it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sapwood.cli import main
from sapwood.cli.plan_capture import Served, served_by
from sim.files import jsonl

NOBODY = dict.fromkeys(
    ("--model-shape", "--chunk-tokens", "--max-running", "--hardware", "--memory", "--cost")
)


def capture(path: Path, model: str, **scheduler: object) -> Path:
    header = {"capture": "sapwood", "version": 1, "began_at": 0.0, "model": model, "scheduler": scheduler}
    return jsonl(path, [header, {"end": 0}])


def test_a_known_model_and_the_scheduler_s_limits_are_taken(tmp_path: Path) -> None:
    path = capture(tmp_path / "run.jsonl", "smollm2-135m", chunk_tokens=128, max_running=4)
    served = served_by(path)
    assert served == Served("smollm2-135m", None, 128, 4)
    taken, hardware = served.notes(NOBODY)
    assert taken.endswith(": --model-shape smollm2-135m, --chunk-tokens 128, --max-running 4")
    assert "--cost CAPTURE" in hardware
    [taken] = served.notes({**NOBODY, "--model-shape": "llama-3-8b", "--hardware": "a100"})
    assert taken.endswith(": --chunk-tokens 128, --max-running 4")


@pytest.mark.parametrize(
    ("flag", "value"), [("--hardware", "a100"), ("--memory", 80_000_000_000), ("--cost", "run.jsonl")]
)
def test_who_says_what_it_ran_on_is_not_asked(flag: str, value: object) -> None:
    (asked,) = Served(other="my-own").notes({**NOBODY, "--model-shape": "llama-3-8b"})
    assert "give --hardware" in asked
    assert list(Served(other="my-own").notes({**NOBODY, "--model-shape": "llama-3-8b", flag: value})) == []


def test_a_model_whose_shape_is_not_known_is_named(tmp_path: Path) -> None:
    served = served_by(capture(tmp_path / "run.jsonl", "my-own", chunk_tokens=None, max_running="8"))
    assert served == Served(None, "my-own", None, None)
    assert next(iter(served.notes(NOBODY))).startswith("the captured model, my-own")


@pytest.mark.parametrize("text", ["", "hello\n", '{"timestamp": 0}\n', '{"capture": "other"}\n'])
def test_other_files_say_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "trace").write_text(text)
    assert served_by(tmp_path / "trace") == served_by(tmp_path / "none") == Served()
    assert list(Served().notes(NOBODY)) == []


def test_one_that_may_not_be_looked_at_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", denied)
    assert served_by(tmp_path / "run.jsonl") == Served()


def test_a_plan_says_as_what_it_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = {"capture": "sapwood", "version": 1, "began_at": 0.0, "model": "smollm2-135m", "scheduler": {}}
    row = {
        "request": "a",
        "order": 0,
        "arrival": 0.0,
        "step": 0,
        "started_step": 0,
        "ended_step": 2,
        "prompt": [1, 2, 3],
        "outputs": [[4]],
        "finish": ["stop"],
        "cached_tokens": 0,
        "reused": 0,
    }
    path = jsonl(tmp_path / "run.jsonl", [header, row, {"end": 2}])
    assert main(["plan", str(path), "--capacity", "100", "--policy", "lru", "--timed", "0"]) == 0
    out = capsys.readouterr().out
    assert "smollm2-135m" in out
    assert "as the captured server was set: --model-shape smollm2-135m" in out


def test_a_pipe_is_left_to_who_reads_the_trace(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert served_by(tmp_path / "pipe") == Served()
