"""A file of lines, packed or not, whose faults are told by line."""

from __future__ import annotations

import gzip
import json
import lzma
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sapwood.errors import UsageError
from sapwood.sim.readers.values import ids_of, parsed
from sapwood.sim.trace import Names

_LONGEST_SHOWN = 60
_MOST = 2**62
"""No count of anything here."""
_MOST_TOKENS = 2**31
"""No request has as many."""
_MOST_REAL = 1e20
"""No time, in whatever unit, from seconds to nanoseconds."""


@dataclass(frozen=True, slots=True)
class Line:
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Row:
    """A JSON object of a file. What its fields are not is told with the line. Raises UsageError throughout."""

    where: str
    fields: Mapping[str, Any]

    def whole(self, name: str, least: int, below: int = _MOST) -> int:
        value = self.fields.get(name)
        if type(value) is not int or not least <= value < below:
            most = "" if below == _MOST else f" and below {below}"
            raise self.fault(name, f"a whole number of at least {least}{most}")
        return value

    def tokens(self, name: str, least: int) -> int:
        """How many."""
        return self.whole(name, least, _MOST_TOKENS)

    def real(self, name: str) -> float:
        """A number that can be a time or a difference of times."""
        value = self.fields.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _MOST_REAL:
            raise self.fault(name, "a number")
        return float(value)

    def text(self, name: str) -> str:
        value = self.fields.get(name)
        if not isinstance(value, str):
            raise self.fault(name, "a text")
        return value

    def array(self, name: str) -> list[Any]:
        value = self.fields.get(name)
        if not isinstance(value, list):
            raise self.fault(name, "a list")
        return value

    def ids(self, name: str, value: Any) -> Names:
        """Token ids, int32 [tokens]: what the field `name` has there."""
        try:
            return ids_of(value)
        except ValueError:
            raise self.fault(name, "token ids, each from 0 to 2147483647,") from None

    @contextmanager
    def at_fault(self) -> Iterator[None]:
        """What is no value within is told with the line."""
        with _told_of(self.where):
            yield

    def fault(self, name: str, expected: str) -> UsageError:
        if name not in self.fields:
            return UsageError(f"{self.where} has no {name!r}; {expected} was expected")
        shown = json.dumps(self.fields[name])
        if len(shown) > _LONGEST_SHOWN:
            shown = f"{shown[:_LONGEST_SHOWN]} …"
        return UsageError(f"{self.where}: {name!r} is {shown}; {expected} was expected")


@dataclass(frozen=True, slots=True)
class Source:
    """A file as it lies there, gzip or xz or plain, whatever its name says. It prints as what it was called.

    `called` is how whoever named it knows it, where it is a copy of that.
    """

    path: Path
    called: str | None = None

    def __str__(self) -> str:
        return self.called or str(self.path)

    @property
    def name(self) -> str:
        """Of the file without its endings."""
        return self.path.name.split(".jsonl")[0].split(".csv")[0].removesuffix(".gz").removesuffix(".xz")

    def lines(self) -> Iterator[Line]:
        """Those that hold something. Raises UsageError for a file that cannot be read to its end."""
        number = 0
        try:
            with self._open() as file:
                for number, line in enumerate(file, 1):
                    if text := line.decode().strip("\r\n\ufeff "):
                        yield Line(number, text)
        except UnicodeDecodeError:
            raise UsageError(
                f"{self.at(number)} is no text in UTF-8", hint="a trace is a text file"
            ) from None
        except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError):
            raise UsageError(
                f"{self} cannot be unpacked beyond line {number}",
                hint="the file is cut or damaged; get it again",
            ) from None
        except OSError as error:
            raise UsageError(f"cannot read {self}: {error.strerror or error}") from None

    def rows(self) -> Iterator[Row]:
        """All lines as JSON objects. Raises UsageError for one that is none."""
        for line in self.lines():
            yield self.row(line)

    def row(self, line: Line) -> Row:
        try:
            fields = parsed(line.text)
        except ValueError as error:
            raise UsageError(
                f"{self.at(line.number)} is no JSON: {error}",
                hint="the line is cut or damaged; get the file again",
            ) from None
        if not isinstance(fields, dict):
            raise UsageError(f"{self.at(line.number)} is no JSON object; one a line was expected")
        return Row(self.at(line.number), fields)

    def at(self, number: int) -> str:
        return f"{self.path.name}, line {number}"

    @contextmanager
    def at_fault(self, line: Line) -> Iterator[None]:
        """What is no value within is told with the line."""
        with _told_of(self.at(line.number)):
            yield

    @contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        with self.path.open("rb") as raw:
            start = raw.read(6)
            raw.seek(0)
            if start.startswith(b"\x1f\x8b"):
                with gzip.open(raw) as unpacked:
                    yield unpacked  # type: ignore[misc]
            elif start == b"\xfd7zXZ\x00":
                with lzma.open(raw) as unpacked:
                    yield unpacked
            else:
                yield raw


@contextmanager
def _told_of(where: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None
