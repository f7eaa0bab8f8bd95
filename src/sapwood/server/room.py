"""Refuses what cannot fit by its length alone, before it is tokenised: that can take half a minute."""

from __future__ import annotations

from collections.abc import Sequence

from sapwood.chat import Conversation, Tokenizer
from sapwood.errors import ContextLengthError

CALL_BYTES = 4 * 2**20
"""Most text in one call of several prompts, if one prompt may not have more: about two seconds of tokenising."""


class PromptRoom:
    """How many bytes a prompt of `context` tokens can have, if every token were the vocabulary's longest.

    Attributes:
        lengths: bytes of each token of the vocabulary.
    """

    def __init__(self, tokenizer: Tokenizer, context: int) -> None:
        self._context = context
        self.lengths = tuple(len(tokenizer.token_bytes(token)) for token in range(tokenizer.vocab_size))
        self._longest = max(self.lengths, default=1)

    @property
    def limit(self) -> int:
        """Most bytes of one prompt, so also most tokens that a text of that length can have."""
        return self._context * self._longest

    def check(self, text: str, param: str) -> None:
        """Raises ContextLengthError when `text` is longer than any prompt can be."""
        self._check_size(len(text.encode()), param)

    def check_prompts(self, prompts: Sequence[str | Sequence[int]]) -> None:
        """Raises ContextLengthError when one of a call's texts is too long, or all are together."""
        texts = [(i, prompt) for i, prompt in enumerate(prompts) if isinstance(prompt, str)]
        for i, text in texts:
            self.check(text, "prompt" if len(prompts) == 1 else f"prompt[{i}]")
        total, limit = sum(len(text.encode()) for _, text in texts), max(CALL_BYTES, self.limit)
        if total > limit:
            raise ContextLengthError(
                f"the texts of 'prompt' have {total} bytes; one call is limited to {limit} in all",
                param="prompt",
                hint="split the call",
            )

    def check_conversation(self, conversation: Conversation, field: str | None = None) -> None:
        """Raises ContextLengthError when a message is longer than any prompt can be, or all are together.

        `field` is what the dialect calls the messages, where its own do not stand for them one by one.
        """
        for i, message in enumerate(conversation.messages):
            self.check(message.text, field or f"messages[{i}].content")
        self._check_size(conversation.size, field or "messages")

    def check_tokens(self, count: int, param: str) -> None:
        """Raises ContextLengthError for more tokens than any text that is taken here has."""
        if count > self.limit:
            raise ContextLengthError(
                f"{param!r} has {count} tokens; at most {self.limit} are taken", param=param
            )

    def _check_size(self, size: int, param: str) -> None:
        if size > self.limit:
            raise ContextLengthError(
                f"{param!r} has {size} bytes; the context is limited to {self._context} tokens"
                f" of at most {self._longest} bytes, {self.limit} in all",
                param=param,
                hint="shorten the prompt",
            )
