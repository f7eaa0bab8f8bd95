"""The JSON document that every suite ends with."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from typing import Any

from .combine import save
from .machine import current_commit, describe_machine
from .noise import Moment, noise_between
from .report import document_table
from .rows import Row


@dataclass(frozen=True, slots=True)
class Output:
    """Where a document goes: to `file` if there is one; and stdout gets it as one line of JSON, or its table."""

    file: Path | None
    as_json: bool


def make_document(
    regime: Mapping[str, Any], rows: Sequence[Row], before: Moment, typed: Sequence[str]
) -> dict[str, Any]:
    """`before` is the moment when the suite began, `typed` the words of its command line."""
    return {
        "regime": dict(regime),
        "machine": describe_machine(),
        "noise": asdict(noise_between(before, Moment.now())),
        "commit": current_commit(),
        "command": shown_command(typed),
        "rows": [row.json() for row in rows],
    }


def emit(document: Mapping[str, Any], output: Output) -> None:
    """Stdout comes first: what was measured is not lost with the file. Raises BenchError."""
    print(
        json.dumps(document, ensure_ascii=False) if output.as_json else document_table(document),
        flush=True,
    )
    if output.file is not None:
        save(document, output.file)


def shown_command(typed: Sequence[str]) -> str:
    """The command line without secrets, and without what is only true on this machine: absolute paths become names."""
    return shlex.join(shown_argument(word) for word in _without_keys(typed))


def _without_keys(typed: Sequence[str]) -> Iterator[str]:
    follows = False
    for word in typed:
        name, equals, _ = word.partition("=")
        if name == "--api-key":
            yield "--api-key=KEY" if equals else word
        else:
            yield "KEY" if follows else word
        follows = word == "--api-key"


def shown_argument(argument: str) -> str:
    """An absolute path, or one after `=`, becomes its last part; anything else stays."""
    name, equals, value = argument.partition("=")
    if equals and PurePath(value).is_absolute():
        return f"{name}={PurePath(value).name}"
    return PurePath(argument).name if PurePath(argument).is_absolute() else argument


def tell(text: str) -> None:
    """Progress, for people."""
    print(text, file=sys.stderr, flush=True)
