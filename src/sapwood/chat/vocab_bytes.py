"""From a token's entry in the vocabulary to the bytes it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sapwood.errors import ModelError

Spelling = Literal["byte_level", "sentencepiece"]

_SPACE = "▁"


def _byte_level_table() -> dict[str, int]:
    """GPT-2's spelling of bytes: printable Latin-1 as itself, the other 68 as U+0100 and up."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    table = {chr(byte): byte for byte in printable}
    table.update({chr(256 + n): byte for n, byte in enumerate(others)})
    return table


@dataclass(frozen=True, slots=True)
class VocabSpelling:
    """How a vocabulary spells bytes. `strips_first_space`: a text's first space is the encoder's."""

    spelling: Spelling
    strips_first_space: bool
    table: Mapping[str, int]

    def to_bytes(self, entry: str) -> bytes:
        """The bytes of a vocabulary entry that is no added token (those are plain text)."""
        if self.spelling == "byte_level":
            codes = [self.table.get(char) for char in entry]
            known = [code for code in codes if code is not None]
            return bytes(known) if len(known) == len(codes) else entry.encode()
        if len(entry) == 6 and entry.startswith("<0x") and entry.endswith(">"):
            return bytes.fromhex(entry[3:5])
        return entry.replace(_SPACE, " ").encode()


def spelling_of(decoder: object) -> VocabSpelling:
    """Reads the `decoder` of a tokenizer.json. Raises ModelError for one that is neither of the two kinds."""
    parts = _parts(decoder)
    kinds = {part.get("type") for part in parts}
    if "ByteLevel" in kinds:
        return VocabSpelling("byte_level", False, _byte_level_table())
    if "Metaspace" in kinds or any(
        part.get("type") == "Replace" and part.get("pattern") == {"String": _SPACE} for part in parts
    ):
        prefixed = any(
            part.get("type") == "Strip" or part.get("prepend_scheme", "never") != "never" for part in parts
        )
        return VocabSpelling("sentencepiece", prefixed, {})
    raise ModelError(
        f"the tokenizer's decoder {sorted(map(str, kinds))} is neither ByteLevel nor SentencePiece's"
    )


def _parts(decoder: object) -> list[dict[str, object]]:
    if not isinstance(decoder, dict):
        return []
    nested = decoder.get("decoders")
    if not isinstance(nested, list):
        return [decoder]
    return [part for child in nested for part in _parts(child)]
