"""Keeps what users wrote from becoming control tokens, although a template pastes it between real ones.

Before rendering, in every text that came with the request, the first character of each place that could begin
a control token is replaced by a stand-in: a private-use character that occurs nowhere in the request. So a
control token that is spelled with its true first character after rendering was begun by the template. Then
the stand-ins are put back.

A place could begin a control token where the text agrees with one in its first two characters, or ends (save
for white space) after the first: spellings that arise only when a template joins texts are caught too. (One
that arises because a template deletes characters between the first two is not.) Text without such places
renders untouched, and the exchange is one character for one, so lengths stay true.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sapwood.chat.tokenizer import SpecialToken
from sapwood.errors import RequestError

STAND_INS = range(0x10_0000, 0x10_FFFE)
"""Supplementary Private Use Area B."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a rendered prompt. In a trusted one, spellings of control tokens are control tokens."""

    text: str
    trusted: bool


class LookalikeGuard:
    """Hides the look-alikes of one request's texts, and finds them again in what was rendered."""

    def __init__(self, specials: Sequence[SpecialToken], values: Iterable[Any]) -> None:
        """`values` are the request's texts in any nesting of lists and mappings."""
        self._specials = specials
        self._starts = _starts(specials)
        first_chars = sorted({special.text[0] for special in specials})
        self._stand_ins = dict(
            zip(first_chars, unused_characters(list(values), len(first_chars)), strict=True)
        )
        self._originals: dict[str, str | int | None] = {
            stand_in: char for char, stand_in in self._stand_ins.items()
        }

    def hide(self, value: Any) -> Any:
        """`value` with look-alikes hidden in all its texts, keys included."""
        if isinstance(value, str):
            if self._starts is None:
                return value
            return self._starts.sub(lambda match: self._stand_ins[match[0]], value)
        if isinstance(value, Mapping):
            return {self.hide(key): self.hide(entry) for key, entry in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.hide(entry) for entry in value]
        return value

    def segments(self, rendered: str) -> list[Segment]:
        """Cuts rendered text between control tokens; only stretches that hold a stand-in are not trusted."""
        if not any(stand_in in rendered for stand_in in self._originals):
            return [Segment(rendered, trusted=True)] if rendered else []
        shown = str.maketrans(self._originals)
        stretches = re.split(f"({_spellings(self._specials)})", rendered)
        runs = itertools.groupby(stretches, lambda stretch: stretch.translate(shown) == stretch)
        found = (Segment("".join(run).translate(shown), trusted) for trusted, run in runs)
        return [segment for segment in found if segment.text]


def _starts(specials: Sequence[SpecialToken]) -> re.Pattern[str] | None:
    """Matches the one character at each place that could begin a control token."""
    places = set()
    for special in specials:
        first, second = re.escape(special.text[0]), re.escape(special.text[1:2])
        places.add(f"{first}(?={second}|\\s*\\Z)" if second else first)
    return re.compile("|".join(sorted(places))) if places else None


def _spellings(specials: Sequence[SpecialToken]) -> str:
    """Matches control tokens as the tokenizer does: longest first, with the white space they swallow."""
    longest_first = sorted(specials, key=lambda special: -len(special.text))
    # From the white space's start alone: tried at each of its characters, time would be quadratic in it.
    before = r"(?:(?<!\s)\s++)?"
    return "|".join(
        (before if special.lstrip else "") + re.escape(special.text) + (r"\s*" if special.rstrip else "")
        for special in longest_first
    )


def unused_characters(values: list[Any], count: int) -> list[str]:
    """`count` private-use characters that occur nowhere in `values`. Raises RequestError if none are left."""
    if count == 0:
        return []
    used = set(json.dumps(values, ensure_ascii=False, default=str))
    free = (chr(code) for code in STAND_INS if chr(code) not in used)
    found = list(itertools.islice(free, count))
    if len(found) < count:
        raise RequestError("the messages hold every private-use character; none is left to mark them with")
    return found
