"""Small traces, written where a test wants them."""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """A line for each row; packed as the ending says."""
    return text_file(path, "".join(json.dumps(row) + "\n" for row in rows))


def text_file(path: Path, text: str) -> Path:
    data = text.encode()
    if path.suffix == ".gz":
        data = packed(data)
    elif path.suffix == ".xz":
        data = lzma.compress(data)
    path.write_bytes(data)
    return path


def packed(data: bytes) -> bytes:
    """Packed by gzip, without the time of the packing."""
    return gzip.compress(data, mtime=0)
