"""Lines of a capture, as a server writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sapwood.sim.readers.source import Source
from sim.files import jsonl

HEADER = {"capture": "sapwood", "version": 1, "began_at": 1000.5, "model": "toy"}


def served(name: str, order: int, **others: Any) -> Mapping[str, Any]:
    fields = {
        "request": name,
        "order": order,
        "arrival": float(order),
        "step": order,
        "started_step": order,
        "ended_step": order + 3,
        "tenant": "",
        "adapter": "",
        "salt": "",
        "prompt": [5, 6, 7],
        "outputs": [[8, 9]],
        "reused": 2,
    }
    return {**fields, **others}


def source(tmp_path: Path, *rows: Mapping[str, Any]) -> Source:
    return Source(jsonl(tmp_path / "mine.jsonl", rows))
