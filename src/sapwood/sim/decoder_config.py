"""A `config.json` as transformers writes it: its values by name, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sapwood.errors import UsageError
from sapwood.sim.readers.values import parsed

_MOST_LAYERS, _MOST = 10_000, 10**9
"""Of layers, and of anything else, that a model may have."""


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Attributes:
    name: of the model, for people.
    whole: all of the file.
    text: the part that tells of the decoder: where a model sees pictures too it is a part, else all.
    """

    name: str
    whole: Mapping[str, Any]

    @property
    def text(self) -> Mapping[str, Any]:
        part = self.whole.get("text_config")
        return part if isinstance(part, Mapping) else self.whole

    @property
    def kind(self) -> str:
        return str(self.text.get("model_type") or self.whole.get("model_type") or "")

    def number(self, key: str, otherwise: int | None = None, *, least: int = 1) -> int:
        """Raises UsageError for what is none, or is missing where nothing is said `otherwise`."""
        value = self.text.get(key)
        if value is None and otherwise is not None:
            return otherwise
        most = _MOST_LAYERS if key == "num_hidden_layers" else _MOST
        if type(value) is not int or value < least:
            raise UsageError(f"the config of {self.name} has {key} = {value!r}; a whole number was expected")
        if value > most:
            raise UsageError(f"the config of {self.name} has {key} = {value}; at most {most:,} were expected")
        return value

    def says(self, *keys: str) -> Any:
        """The first of these that is set, in the part of the text or in the whole; None if none is."""
        for part in (self.text, self.whole):
            for key in keys:
                if part.get(key) not in (None, "", {}, []):
                    return part[key]
        return None

    @property
    def tied(self) -> bool:
        """Whether the output layer is the embedding's table."""
        said = self.text.get("tie_word_embeddings", self.whole.get("tie_word_embeddings"))
        return self.kind.startswith("gemma") if said is None else bool(said)


def read_config(path: Path) -> DecoderConfig:
    """A file is named by its own name, and one that has the name of all by its folder. Raises UsageError."""
    try:
        values = parsed(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise UsageError(f"{path} holds no object")
    name = path.stem if path.name != "config.json" else path.resolve().parent.name
    return DecoderConfig(name or path.stem, values)
