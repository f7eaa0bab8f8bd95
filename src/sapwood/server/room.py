"""Refuses a text that cannot fit by its length alone, before it is tokenised: that can take half a minute."""

from __future__ import annotations

from sapwood.chat import Tokenizer
from sapwood.errors import ContextLengthError


class PromptRoom:
    """How many bytes a prompt of `context` tokens can have, if every token were the vocabulary's longest."""

    def __init__(self, tokenizer: Tokenizer, context: int) -> None:
        self._context = context
        self._longest = max(
            (len(tokenizer.token_bytes(token)) for token in range(tokenizer.vocab_size)), default=1
        )

    def check(self, text: str, param: str) -> None:
        """Raises ContextLengthError when `text` is longer than any prompt can be."""
        length, limit = len(text.encode()), self._context * self._longest
        if length > limit:
            raise ContextLengthError(
                f"{param!r} has {length} bytes; the context is limited to {self._context} tokens"
                f" of at most {self._longest} bytes, {limit} in all",
                param=param,
                hint="shorten the prompt",
            )
