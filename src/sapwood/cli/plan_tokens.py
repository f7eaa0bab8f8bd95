"""How texts of a trace become tokens: by a tokenizer that is named, or byte by byte."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sapwood.errors import ModelError, UsageError
from sapwood.sim import Progress, Tokenize, text_bytes

if TYPE_CHECKING:
    from sapwood.model import VocabSource

_FORMS = "`bytes`, a tokenizer.json or its folder, or a model: smollm2-135m, hf:org/name or a path"


def tokenizer_named(name: str | None, progress: Progress) -> Tokenize | None:
    """`bytes`, a `tokenizer.json` or its folder, or a MODEL, of which no weights are read; None is none.

    Raises UsageError for a name that means nothing, ModelError for a model without a tokenizer.
    """
    if name is None:
        return None
    if name == "bytes":
        return text_bytes
    from sapwood.engine import load_tokenizer

    progress(f"reading: the tokenizer of {name}")
    tokenizer = load_tokenizer(name, _vocab(name, progress))
    return lambda text: tokenizer.encode(text)


def _vocab(name: str, progress: Progress) -> VocabSource | None:
    from sapwood.model import VocabSource, load_checkpoint, resolve

    if (file := _here(name)) is not None:
        return VocabSource(file)
    place = resolve(_checked(name), progress=progress)
    file = _file(place)
    return load_checkpoint(place).vocab if file is None else VocabSource(file)


def _here(name: str) -> Path | None:
    """The file that `name` is, or that lies in it. Raises UsageError for one that cannot be looked for."""
    try:
        return _file(Path(name).expanduser())
    except (OSError, RuntimeError) as error:  # A folder of somebody else, a home of nobody.
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(
            f"--tokenizer: there is no tokenizer {name!r}: {why}", hint=f"give {_FORMS}"
        ) from None


def _file(place: Path) -> Path | None:
    """The `tokenizer.json` that is there: weights are not needed beside it."""
    for file in (place, place / "tokenizer.json"):
        if file.suffix == ".json" and file.is_file():
            return file
    return None


def _checked(name: str) -> str:
    """A MODEL; of one on the hub the file that is needed, and no weights. Raises UsageError for a name of nothing."""
    from sapwood.model import check_name

    try:
        check_name(name)
    except (ModelError, UsageError):
        hint = f"give {_FORMS}"
        if name.count("/") == 1 and not name.startswith((".", "~", "/")):
            hint = f"hf:{name} fetches its tokenizer.json from the Hugging Face hub; else {hint}"
        raise UsageError(f"--tokenizer: there is no tokenizer {name!r}", hint=hint) from None
    return f"{name}:tokenizer.json" if name.startswith("hf:") and name.count(":") == 1 else name
