"""A file that nobody waits for."""

from __future__ import annotations

import json
import logging
import os
import stat
from pathlib import Path

import pytest

from sapwood.engine import LineFile, line_file
from sapwood.errors import UsageError


def test_lines_are_appended_and_only_the_owner_may_read_them(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    for value in (1, 2):
        file = LineFile(path)
        file.write({"value": value})
        file.close()
        file.close()
    assert [json.loads(line) for line in path.read_text().splitlines()] == [{"value": 1}, {"value": 2}]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_was_open_to_others_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.touch(0o644)
    LineFile(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["no/such/folder/lines.jsonl", "."])
def test_a_file_that_cannot_be_opened_is_told_at_once(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        LineFile(tmp_path / name)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk to write to")
def test_a_full_disk_is_logged_once_and_the_rest_dropped(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fchmod", lambda *_: None)
    file = LineFile(Path("/dev/full"))
    with caplog.at_level(logging.WARNING, "sapwood.engine"):
        for value in range(3):
            file.write({"value": value})
        file.close()
    assert [record.getMessage() for record in caplog.records] == [
        "/dev/full cannot be written any more: No space left on device"
    ]


def test_a_slow_disk_loses_lines_and_says_how_many(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_file, "MOST_WAITING", 2)
    path = tmp_path / "slow"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    file = LineFile(path)
    heavy = {"value": "x" * 200_000}  # More than the pipe holds: the writer waits in the midst of it.
    file.write(heavy)
    while file._waiting.qsize():
        pass
    with caplog.at_level(logging.WARNING, "sapwood.engine"):
        for value in range(5):
            file.write({"value": value})
    assert [record.getMessage() for record in caplog.records] == [
        f"{path} is written too slowly; what does not fit is left out"
    ]
    text = b""
    while text.count(b"\n") < 3:
        text += os.read(reader, 65536)
    file.write({"value": 9})
    while text.count(b"\n") < 5:
        text += os.read(reader, 65536)
    file.close()
    os.close(reader)
    assert [json.loads(line) for line in text.splitlines()] == [
        heavy,
        {"value": 0},
        {"value": 1},
        {"lost": 3},
        {"value": 9},
    ]
