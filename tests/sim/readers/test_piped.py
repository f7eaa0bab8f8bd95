from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest

from sapwood.errors import UsageError
from sapwood.sim.reading import read_trace

ROW = b'{"timestamp": 3, "input_length": 600, "output_length": 4, "hash_ids": [1, 2]}\n'


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "rows"
    os.mkfifo(path)
    return path


def test_a_pipe_is_read_as_a_file_is(pipe: Path) -> None:
    writer = Thread(target=pipe.write_bytes, args=[ROW * 3], daemon=True)
    writer.start()
    trace = read_trace(pipe)
    writer.join()
    assert trace.name == "rows"
    assert trace.prompt_tokens.tolist() == [600, 600, 600]


def test_what_is_wrong_with_a_pipe_is_told_by_its_name(pipe: Path) -> None:
    writer = Thread(target=pipe.write_bytes, args=[b""], daemon=True)
    writer.start()
    with pytest.raises(UsageError, match=rf"^{pipe} is empty$"):
        read_trace(pipe)
    writer.join()


def test_a_dash_is_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(ROW + b"{}\n")))
    with pytest.raises(UsageError, match=r"^stdin, line 2 has no 'hash_ids'"):
        read_trace(Path("-"))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(ROW)))
    assert read_trace(Path("-")).name == "stdin"
