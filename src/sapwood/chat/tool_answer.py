"""From the engine's deltas to an answer's text and its tool calls, for every dialect's rendering."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from sapwood.chat.tokenizer import Tokenizer
from sapwood.chat.tool_calls import FoundCall, Piece, ToolCallParser
from sapwood.chat.tools import MARKERS, ToolStyle
from sapwood.types import Delta

_ID_CHARS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class NumberedCall:
    """A call and its place among those of its answer."""

    index: int
    id: str
    call: FoundCall


@dataclass(frozen=True, slots=True)
class ToolReading:
    """How the calls in a model's answers are found.

    Attributes:
        names: tools that may be called.
        markers: control tokens of the vocabulary that belong to calls: they leave no text of their own.
    """

    style: ToolStyle
    names: frozenset[str]
    markers: Mapping[int, str]

    @classmethod
    def of(cls, tokenizer: Tokenizer, style: ToolStyle, names: frozenset[str]) -> ToolReading:
        markers = {token.id: token.text for token in tokenizer.special_tokens if token.text in MARKERS}
        return cls(style, names, markers)

    def reader(self, answer_id: str) -> AnswerReader:
        """A reader for one sample; `answer_id` makes the ids of its calls."""
        return AnswerReader(ToolCallParser(self.style, self.names), self.markers, answer_id)


class AnswerReader:
    """Reads one sample's deltas. `calls` counts those found."""

    def __init__(self, parser: ToolCallParser, markers: Mapping[int, str], answer_id: str) -> None:
        self._parser, self._markers, self._answer_id = parser, markers, answer_id
        self.calls = 0

    def read(self, delta: Delta) -> list[str | NumberedCall]:
        """What `delta` completes; with its last delta the answer is over."""
        marked = "".join(self._markers.get(token, "") for token in delta.token_ids)
        pieces = self._parser.feed(delta.text + marked)
        if delta.finish is not None:
            pieces += self._parser.end()
        return [self._numbered(piece) for piece in pieces]

    def reason(self, finish: str) -> str:
        """Why the answer ended, in OpenAI's words."""
        return "tool_calls" if self.calls and finish == "stop" else finish

    def _numbered(self, piece: Piece) -> str | NumberedCall:
        if isinstance(piece, str):
            return piece
        self.calls += 1
        return NumberedCall(self.calls - 1, _call_id(self._answer_id, self.calls), piece)


def _call_id(answer_id: str, number: int) -> str:
    """Nine letters and digits, which is what Mistral's templates insist on."""
    digest = hashlib.blake2b(f"{answer_id}/{number}".encode(), digest_size=9).digest()
    return "".join(_ID_CHARS[byte % len(_ID_CHARS)] for byte in digest)
