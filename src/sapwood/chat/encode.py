"""From what a call asks to the tokens that the engine gets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sapwood.chat.lookalikes import Segment, unused_characters
from sapwood.chat.messages import Conversation
from sapwood.chat.prefill import render_left_open
from sapwood.chat.template import ChatTemplate
from sapwood.chat.tokenizer import Tokenizer
from sapwood.chat.tools import without_tools
from sapwood.errors import RequestError


def encode_prompt(
    tokenizer: Tokenizer, prompt: str | Sequence[int], *, start: bool = True
) -> tuple[int, ...]:
    """Token ids of one raw prompt; ids stay as they are. `start` adds the model's start token if it has one.

    Text that spells a control token becomes that token: whoever writes a raw prompt writes the whole format.
    Raises RequestError when nothing is left.
    """
    if not isinstance(prompt, str):
        return tuple(prompt)
    tokens = tokenizer.encode(prompt, special=True)
    first = tokenizer.bos_id
    if start and tokenizer.add_bos and first is not None and tokens[:1] != [first]:
        tokens.insert(0, first)
    if not tokens:
        raise RequestError("'prompt' is empty; it must hold at least one token", param="prompt")
    return tuple(tokens)


def encode_continuation(tokenizer: Tokenizer, text: str | Sequence[int]) -> tuple[int, ...]:
    """Token ids of a text that follows other tokens, which stay as they are; it may be empty."""
    if not isinstance(text, str):
        return tuple(text)
    return tuple(tokenizer.encode(text, special=True, continues=True))


def encode_conversation(
    tokenizer: Tokenizer, template: ChatTemplate, conversation: Conversation
) -> tuple[int, ...]:
    """Token ids of a conversation. Raises RequestError where the model's template refuses it."""
    ids = encode_segments(tokenizer, render_conversation(template, conversation))
    if not ids:
        raise RequestError("the chat template renders these messages to nothing", param="messages")
    return tuple(ids)


def encode_segments(tokenizer: Tokenizer, segments: Iterable[Segment]) -> list[int]:
    """Token ids of a rendered prompt; as transformers' `apply_chat_template`, save that look-alikes stay text."""
    ids: list[int] = []
    for n, segment in enumerate(segments):
        ids += tokenizer.encode(segment.text, special=segment.trusted, continues=n > 0)
    return ids


def render_conversation(template: ChatTemplate, conversation: Conversation) -> list[Segment]:
    """A conversation as its model's template writes it. Raises RequestError where it refuses."""

    messages = [
        message.as_template_dict(text_arguments=template.text_arguments) for message in conversation.messages
    ]
    tools: Sequence[Mapping[str, Any]] | None = conversation.tools or None
    if not template.knows_tools and _has_tools(conversation):
        messages, tools = without_tools(messages, conversation.tools), None

    def render(messages: Sequence[Mapping[str, Any]]) -> list[Segment]:
        return template.render(
            messages,
            add_generation_prompt=conversation.add_generation_prompt,
            tools=tools,
            extra=conversation.template_kwargs,
        )

    if not conversation.continue_final_message:
        return render(messages)
    (mark,) = unused_characters([messages, tools, conversation.template_kwargs], 1)
    return render_left_open(render, messages, mark)


def _has_tools(conversation: Conversation) -> bool:
    return bool(conversation.tools) or any(message.tool_calls for message in conversation.messages)
