"""A file that nobody waits for."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import stat
import threading
from pathlib import Path

import pytest

from sapwood.engine import LineFile, line_file
from sapwood.errors import UsageError
from waiting import until


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


def test_two_do_not_write_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    first = LineFile(path)
    with pytest.raises(UsageError, match=r"lines\.jsonl is being written by another") as raised:
        LineFile(path)
    assert raised.value.hint == "give each server a file of its own"
    first.close()
    LineFile(path).close()


def test_lines_for_a_file_that_was_removed_are_lost_and_one_that_was_renamed_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, other = tmp_path / "lines.jsonl", tmp_path / "other.jsonl"
    file = LineFile(path)
    path.rename(other)
    file.write({"value": 1})
    until(lambda: other.stat().st_size > 0)
    other.unlink()
    file.write({"value": 2})
    until(lambda: file.lost == 1)
    file.close()
    assert [record.message for record in caplog.records] == [
        f"{path} cannot be written: it was removed, and is made again with the next start; lines are lost until it can "
        "be"
    ]


def test_a_line_that_its_writer_could_not_end_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"value":1}\n{"val')
    file = LineFile(path)
    file.write({"value": 2})
    file.close()
    assert path.read_text() == '{"value":1}\n{"val\n{"value":2}\n'


def test_only_files_are_closed_to_others_and_a_pipe_that_nobody_reads_is_told(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o640)
    mode = stat.S_IMODE(pipe.stat().st_mode)
    with pytest.raises(UsageError, match="cannot write") as caught:
        LineFile(pipe)
    assert "a pipe that is being read" in str(caught.value)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    LineFile(pipe).close()
    os.close(reader)
    assert stat.S_IMODE(pipe.stat().st_mode) == mode


def test_a_file_that_cannot_be_closed_to_others_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "fchmod", refuse)
    with pytest.raises(UsageError, match=r"cannot write .*: Operation not permitted"):
        LineFile(tmp_path / "lines.jsonl")


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_where_no_file_can_be_locked_it_is_written_all_the_same(
    number: int, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    path = tmp_path / "lines.jsonl"
    file = LineFile(path)
    file.write({"value": 1})
    file.close()
    assert path.read_text() == '{"value":1}\n'
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{path} cannot be locked, as its file system has no locks")


def test_a_file_whose_lock_fails_otherwise_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(UsageError, match=r"cannot write .*: Input/output error"):
        LineFile(tmp_path / "lines.jsonl")


def test_a_line_that_is_no_json_is_lost_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "lines.jsonl"
    file = LineFile(path)
    with caplog.at_level(logging.WARNING, "sapwood.engine"):
        file.write({"value": object()})
        file.write({"value": {1, 2}})
        file.write({"value": 3})
        file.write({"value": object()})
        file.close()
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"lost": 2},
        {"value": 3},
        {"lost": 1},
    ]
    (record,) = caplog.records
    assert "cannot be written, and is left out: TypeError" in record.getMessage()
    assert file.lost == 3


def test_a_disk_that_was_full_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, now, full = tmp_path / "lines.jsonl", [100.0], [False]
    file = LineFile(path, clock=lambda: now[0])
    write = os.write

    def little(descriptor: int, data: bytes) -> int:
        if descriptor != file._descriptor or not full[0]:
            return write(descriptor, data)
        if len(data) < 8:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[:6])

    monkeypatch.setattr(os, "write", little)
    with caplog.at_level(logging.WARNING, "sapwood.engine"):
        file.write({"value": 1})
        until(lambda: path.read_text().count("\n") == 1)
        full[0] = True
        file.write({"value": 2})
        until(lambda: file._unwritten == 1)
        full[0] = False
        now[0] += line_file.RETRY_SECONDS / 2
        file.write({"value": 3})
        until(lambda: file._unwritten == 2)
        now[0] += line_file.RETRY_SECONDS / 2
        file.write({"value": 4})
        file.close()
    assert file.lost == 2
    assert path.read_text() == '{"value":1}\n{"valu\n{"lost":2}\n{"value":4}\n'
    assert [record.getMessage() for record in caplog.records] == [
        f"{path} cannot be written: No space left on device; lines are lost until it can be",
        f"{path} can be written again",
    ]


def test_what_was_lost_last_is_told_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_file, "MOST_WAITING_BYTES", 300_000)
    path = tmp_path / "slow"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    file = LineFile(path)
    heavy = {"value": "x" * 200_000}
    for _ in range(3):
        file.write(heavy)
    read: list[bytes] = []

    def read_all() -> None:
        while data := os.read(reader, 65536):
            read.append(data)

    thread = threading.Thread(target=read_all)
    thread.start()
    file.close()
    thread.join()
    os.close(reader)
    assert [json.loads(line) for line in b"".join(read).splitlines()] == [heavy, {"lost": 2}]
    assert file.lost == 2


@pytest.mark.parametrize("name", ["no/such/folder/lines.jsonl", "."])
def test_a_file_that_cannot_be_opened_is_told_at_once(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        LineFile(tmp_path / name)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk to write to")
def test_a_full_disk_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = LineFile(Path("/dev/full"))
    with caplog.at_level(logging.WARNING, "sapwood.engine"):
        for value in range(3):
            file.write({"value": value})
        file.close()
    assert file.lost == 3
    assert [record.getMessage() for record in caplog.records] == [
        "/dev/full cannot be written: No space left on device; lines are lost until it can be"
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
    assert file.lost == 3
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


def test_a_line_that_tells_of_lost_ones_is_not_counted_when_it_is_lost_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(line_file, "MOST_WAITING_BYTES", 100)
    file = LineFile(Path("/dev/full"))
    held = threading.Event()
    take = file._take
    monkeypatch.setattr(file, "_take", lambda line: (held.wait(20), take(line)))
    for value in range(4):
        file.write({"value": value, "text": "x" * 80})
    held.set()
    file.close()
    assert file.lost == 4


def test_a_disk_that_does_not_take_the_end_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_file, "_FLUSH_SECONDS", 0.05)
    path, held = tmp_path / "lines.jsonl", threading.Event()
    file = LineFile(path)
    take = file._take
    monkeypatch.setattr(file, "_take", lambda line: (held.wait(20), take(line)))
    file.write({"value": 1})
    with caplog.at_level(logging.WARNING, "sapwood.engine"):
        file.close()
    held.set()
    assert [record.getMessage() for record in caplog.records] == [f"{path} could not be written to its end"]
