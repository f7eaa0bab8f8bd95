"""Whatever the format, and whatever is wrong with the file."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from sapwood.errors import UsageError
from sapwood.sim.reading import read_trace
from sim.files import jsonl, packed, text_file

MOONCAKE = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 7]}
WEKA = {
    "id": "t",
    "block_size": 64,
    "requests": [{"t": 0, "type": "n", "model": "m", "in": 64, "out": 1, "hash_ids": [1]}],
}
LMCACHE = {"timestamp": 1, "input": "hi", "output": "", "session_id": "s"}
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        (json.dumps(MOONCAKE), 512),
        (json.dumps(WEKA), 64),
        (json.dumps(LMCACHE), 1),
        (AZURE, 64),
        ("\ufeff\n\n" + json.dumps(MOONCAKE), 512),
    ],
)
@pytest.mark.parametrize("pack", [bytes, packed, lzma.compress])
def test_a_format_is_known_by_what_is_in_the_file(
    text: str, unit: int, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    path = tmp_path / "trace"
    path.write_bytes(pack(text.encode()))
    trace = read_trace(path)
    assert (len(trace), trace.unit_tokens) == (1, unit)


def test_wishes_reach_the_reader(tmp_path: Path) -> None:
    assert read_trace(
        jsonl(tmp_path / "a.jsonl", [{**LMCACHE, "output": "Yo"}]), tokenize=lambda _: [5]
    ).names.tolist() == [5, 5]
    weka = jsonl(tmp_path / "b.jsonl", [WEKA, WEKA])
    assert read_trace(weka, in_a_row=True).arrivals.tolist() == [0.0, 0.0]
    assert read_trace(weka, seed=1).arrivals[1] != read_trace(weka, seed=2).arrivals[1]


def cut(data: bytes) -> bytes:
    return data[: len(data) * 2 // 3]


ROWS = "".join(
    json.dumps({**MOONCAKE, "timestamp": at, "hash_ids": [at, -at]}) + "\n" for at in range(400)
).encode()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (packed(b""), "is empty"),
        (b"hello there\n", "in no format that is known here; it begins with 'hello there'"),
        (b'{"a": 1}\n', "in no format that is known here"),
        (b"[1, 2]\n", "in no format that is known here"),
        (cut(packed(ROWS)), "cannot be unpacked beyond line"),
        (cut(lzma.compress(ROWS)), "cannot be unpacked beyond line"),
        (packed(ROWS)[:-8] + b"12345678", "cannot be unpacked"),
        (ROWS + b'{"timestamp": 0, "inp', "trace, line 401 is no JSON"),
        (ROWS + b"7\n", "trace, line 401 is no JSON object"),
        (ROWS + b"\xff\xfe\n", "line 401 is no text in UTF-8"),
        (b"\x00\xff" * 50, "line 1 is no text in UTF-8"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(data: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_bytes(data)
    with pytest.raises(UsageError) as caught:
        read_trace(path)
    assert said in str(caught.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*: No such file"):
        read_trace(tmp_path / "none")
    with pytest.raises(UsageError, match=r"is a folder"):
        read_trace(tmp_path)


def test_what_is_not_known_has_a_hint(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"hint: docs/capture\.md"):
        read_trace(text_file(tmp_path / "x", "hello"))
