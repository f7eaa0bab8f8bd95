"""Made-up prompts: the same for both servers, never the same twice, and repeatable from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

LOWEST_ID, HIGHEST_ID = 300, 30_000
"""Ordinary pieces in the usual vocabularies of 32k tokens and more: no control tokens, no single bytes."""

Form = Literal["ids", "text", "chat"]
"""How a plain prompt is put: as token ids, as text, or as the one message of a chat."""

_COMMON = """
time year people way day man thing woman life child world school state family student group country
problem hand part place case week company system program question work night point home water room
mother area money story fact month lot right study book eye job word business issue side kind head
house service friend father power hour game line end member law car city name team minute idea body
back parent face level office door health person art war history party result change morning reason
research girl guy moment air teacher force education foot boy age policy music market old new good
first long great little own other big high small large next early young important few public bad
same able find give tell call try ask need feel become leave put mean keep let begin seem help talk
turn start show hear play run move live believe hold bring happen write provide sit stand lose pay
meet include continue set learn
"""
_WORDS = tuple(_COMMON.split())


@dataclass(frozen=True, slots=True)
class Prompts:
    """A source of prompts. Equal seeds and keys give equal prompts; any other key gives unrelated ones."""

    seed: int
    form: Form = "ids"

    def piece(self, count: int, *key: object) -> tuple[int, ...] | str:
        """About `count` tokens, exactly so as ids; pieces of one source can be added up to longer prompts."""
        return self.ids(count, *key) if self.form == "ids" else self._spaced(count, *key)

    def ids(self, count: int, *key: object) -> tuple[int, ...]:
        """`count` random token ids."""
        source = self._source("ids", key)
        return tuple(source.randrange(LOWEST_ID, HIGHEST_ID) for _ in range(count))

    def words(self, count: int, *key: object) -> str:
        """`count` random English words in sentences of a dozen; a little over one token each."""
        source = self._source("words", key)
        chosen = [source.choice(_WORDS) for _ in range(count)]
        return " ".join(_sentence(chosen[i : i + 12]) for i in range(0, count, 12))

    def _spaced(self, count: int, *key: object) -> str:
        """Lower-case words, each with its space before: one token each in the usual vocabularies."""
        source = self._source("piece", key)
        return "".join(f" {source.choice(_WORDS)}" for _ in range(count))

    def _source(self, kind: str, key: tuple[object, ...]) -> random.Random:
        return random.Random(repr((self.seed, kind, key)))


def _sentence(words: Sequence[str]) -> str:
    text = " ".join(words)
    return text[:1].upper() + text[1:] + "."
