"""The JSON document that every suite ends with."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from typing import Any

from .machine import current_commit, describe_machine
from .noise import Moment, noise_between
from .report import rows_table
from .rows import Row


@dataclass(frozen=True, slots=True)
class Output:
    """Where a document goes: always to stdout, its last line; `only_json` leaves the table out."""

    file: Path | None
    only_json: bool


def make_document(
    regime: Mapping[str, Any], rows: Sequence[Row], before: Moment, arguments: Sequence[str]
) -> dict[str, Any]:
    """`before` is the moment when the suite began, `arguments` its command line."""
    return {
        "regime": dict(regime),
        "machine": describe_machine(),
        "noise": asdict(noise_between(before, Moment.now())),
        "commit": current_commit(),
        "command": shown_command(arguments),
        "rows": [row.json() for row in rows],
    }


def emit(document: Mapping[str, Any], output: Output) -> None:
    if output.file is not None:
        output.file.parent.mkdir(parents=True, exist_ok=True)
        output.file.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    if not output.only_json:
        print(rows_table(document["rows"]))
    print(json.dumps(document, ensure_ascii=False))


def shown_command(arguments: Sequence[str]) -> str:
    """The command line without what is only true on this machine: absolute paths become bare names."""
    return " ".join(["python -m bench", *(shown_argument(argument) for argument in arguments)])


def shown_argument(argument: str) -> str:
    """An absolute path, or one after `=`, becomes its last part; anything else stays."""
    name, equals, value = argument.partition("=")
    if equals and PurePath(value).is_absolute():
        return f"{name}={PurePath(value).name}"
    return PurePath(argument).name if PurePath(argument).is_absolute() else argument


def tell(text: str) -> None:
    """Progress, for people."""
    print(text, file=sys.stderr, flush=True)
