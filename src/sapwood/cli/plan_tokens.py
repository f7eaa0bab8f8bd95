"""How texts of a trace become tokens: by a model's tokenizer, or byte by byte."""

from __future__ import annotations

from sapwood.sim import Progress, Tokenize, text_bytes


def tokenizer_named(name: str, progress: Progress) -> Tokenize:
    """`bytes`, or a MODEL as `sapwood serve` takes it, of which the tokenizer alone is used.

    Raises UsageError for no model, ModelError for one without a tokenizer.
    """
    if name == "bytes":
        return text_bytes
    from sapwood.engine import load_tokenizer
    from sapwood.model import load_checkpoint, resolve

    progress(f"reading: the tokenizer of {name}")
    tokenizer = load_tokenizer(name, load_checkpoint(resolve(name, progress=progress)).vocab)
    return lambda text: tokenizer.encode(text)
