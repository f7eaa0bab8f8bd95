"""From what a body asks to the tokens that the engine gets."""

from __future__ import annotations

from sapwood.chat import Conversation
from sapwood.errors import RequestError
from sapwood.server.ports import Built


def encode_prompt(built: Built, prompt: str | tuple[int, ...], *, special: bool) -> tuple[int, ...]:
    """Token ids of one prompt; ids stay as they are. `special` adds the model's start token where it has one.

    Text that spells a special token becomes that token: a completion's prompt is the operator's own.
    """
    if not isinstance(prompt, str):
        return prompt
    tokens = tuple(built.tokenizer.encode(prompt, add_special_tokens=special))
    if not tokens:
        raise RequestError("'prompt' is empty; it must hold at least one token", param="prompt")
    return tokens


def encode_conversation(built: Built, conversation: Conversation) -> tuple[int, ...]:
    """Token ids of a conversation. Raises RequestError where the model's template refuses it."""
    raise NotImplementedError
