"""The JSON document that every suite ends with."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from .machine import Load, current_commit, describe_machine, noise_between
from .report import rows_table
from .rows import Row


@dataclass(frozen=True, slots=True)
class Output:
    """Where a document goes: always to stdout, its last line; `only_json` leaves the table out."""

    file: Path | None
    only_json: bool


def make_document(
    regime: Mapping[str, Any], rows: Sequence[Row], before: Load, arguments: Sequence[str]
) -> dict[str, Any]:
    """`before` is the machine's load when the suite began, `arguments` its command line."""
    return {
        "regime": dict(regime),
        "machine": describe_machine(),
        "noise": dict(noise_between(before, Load.now())),
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
    return " ".join(["python -m bench", *(_shown(argument) for argument in arguments)])


def tell(text: str) -> None:
    """Progress, for people."""
    print(text, file=sys.stderr, flush=True)


def _shown(argument: str) -> str:
    name, equals, value = argument.partition("=")
    if equals and PurePath(value).is_absolute():
        return f"{name}={PurePath(value).name}"
    return PurePath(argument).name if PurePath(argument).is_absolute() else argument
