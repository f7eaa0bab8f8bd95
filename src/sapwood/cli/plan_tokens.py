"""How texts of a trace become tokens: by a tokenizer that is named, or byte by byte."""

from __future__ import annotations

from pathlib import Path

from sapwood.errors import ModelError, UsageError
from sapwood.sim import Progress, Tokenize, text_bytes

_FORMS = (
    "`bytes`, a tokenizer.json or its folder, or a model as `sapwood serve` takes it, such as smollm2-135m"
)


def tokenizer_named(name: str | None, progress: Progress) -> Tokenize | None:
    """`bytes`, a `tokenizer.json` or its folder, or a MODEL of which the tokenizer alone is used; None is none.

    Raises UsageError for a name that means nothing, ModelError for a model without a tokenizer.
    """
    if name is None:
        return None
    if name == "bytes":
        return text_bytes
    from sapwood.engine import load_tokenizer
    from sapwood.model import VocabSource, load_checkpoint, resolve

    progress(f"reading: the tokenizer of {name}")
    file = _file(name)
    if file is not None:
        vocab: VocabSource | None = VocabSource(file)
    else:
        _check_name(name)
        vocab = load_checkpoint(resolve(name, progress=progress)).vocab
    tokenizer = load_tokenizer(name, vocab)
    return lambda text: tokenizer.encode(text)


def _file(name: str) -> Path | None:
    """The `tokenizer.json` that a path leads to: weights are not needed beside it."""
    path = Path(name).expanduser()
    for file in (path, path / "tokenizer.json"):
        if file.suffix == ".json" and file.is_file():
            return file
    return None


def _check_name(name: str) -> None:
    """As the model's room does it, but with a hint for one who has no use for weights."""
    from sapwood.model import check_name

    try:
        check_name(name)
    except (ModelError, UsageError):
        hint = f"give {_FORMS}"
        if name.count("/") == 1 and not name.startswith((".", "~", "/")):
            hint = (
                f"for a tokenizer of the Hugging Face hub: hf download {name} tokenizer.json --local-dir FOLDER, then "
                f"--tokenizer FOLDER; else {hint}"
            )
        raise UsageError(f"--tokenizer: there is no tokenizer {name!r}", hint=hint) from None
