"""Text out of tokens as they come: whole characters only, and nothing is ever taken back."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sapwood.chat.tokenizer import Tokenizer

_MOST_HELD = 3
"""Bytes of a character that is not whole."""


class Detokenizer:
    """One sequence's text: what `add` and `flush` return, put together, is the decoding of all tokens added.

    Bytes that may yet become a character (three at most) are held back; bytes that cannot are U+FFFD at once.
    Control tokens are skipped. `context` is what comes before, the prompt say: a character begun there is
    completed here, and no first space is dropped once it holds text.
    """

    def __init__(self, tokenizer: Tokenizer, context: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._at_start = tokenizer.strips_first_space
        self._from_start(self._decoder.decode(self._tail(context)))

    def add(self, token: int) -> str:
        """The text that `token` completes; often its own, sometimes empty."""
        if token in self._tokenizer.special_ids:
            return ""
        return self._from_start(self._decoder.decode(self._tokenizer.token_bytes(token)))

    def flush(self) -> str:
        """What was held back, as U+FFFD; the sequence is over."""
        return self._from_start(self._decoder.decode(b"", final=True))

    @property
    def between_characters(self) -> bool:
        """Whether nothing is held back."""
        return not self._decoder.getstate()[0]

    def _tail(self, context: Sequence[int]) -> bytes:
        """The last bytes of `context`: enough to hold a character begun there and to tell if any text."""
        tail = b""
        for token in reversed(context):
            if len(tail) > _MOST_HELD:
                break
            if token not in self._tokenizer.special_ids:
                tail = self._tokenizer.token_bytes(token) + tail
        return tail

    def _from_start(self, text: str) -> str:
        if self._at_start and text:
            self._at_start = False
            return text.removeprefix(" ")
        return text
