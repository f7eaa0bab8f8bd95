"""Where in a prompt a token lies: in which message, in which part of it, and between which words.

A template is foreign code, so what it made of each message is found by rendering once more with marks around
the messages' contents. Where the marks changed what it writes, the prompt's tokens do not spell it, and the
message is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sapwood.chat.alignment import token_ends
from sapwood.chat.encode import render_conversation
from sapwood.chat.lookalikes import unused_characters
from sapwood.chat.messages import Conversation, Message
from sapwood.chat.replay import Replayed
from sapwood.chat.template import ChatTemplate
from sapwood.chat.tokenizer import Tokenizer

AROUND = 8
"""Tokens shown before a place, and from it on."""
_MOST_SHOWN = 120
"""Characters of each of the two."""


@dataclass(frozen=True, slots=True)
class Place:
    """A token of a prompt, for a person to find it again.

    Attributes:
        token: its index.
        message: index of the message that it belongs to, if there are messages and it belongs to one.
        part: `prompt`, `content` (of the message; its end too), `template` (what the template writes around
            it), or None where that cannot be told.
        before, after: the text of the tokens before it, and of those from it on.
    """

    token: int
    message: int | None
    part: str | None
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class _Content:
    """What a template made of a message's content, as a range of bytes of the prompt."""

    message: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Marked:
    """A rendered conversation, its marks taken out, and the contents in the order in which they were written."""

    prompt: bytes
    contents: tuple[_Content, ...]


def place_in_prompt(tokenizer: Tokenizer, tokens: Sequence[int], at: int) -> Place:
    """The place of token `at` of a raw prompt."""
    return Place(at, None, "prompt", *_around(tokenizer, tokens, at))


def place_in_conversation(
    tokenizer: Tokenizer,
    lengths: Sequence[int],
    template: ChatTemplate,
    conversation: Conversation,
    tokens: Sequence[int],
    at: int,
    replayed: Sequence[Replayed] = (),
) -> Place:
    """The place of token `at` of a rendered conversation. Renders it again, in time linear in its length.

    `lengths` has the bytes of every token of the vocabulary. Raises RequestError where the template refuses
    the marks.
    """
    marked = _marked_prompt(template, conversation)
    message, part = None, None
    if marked is not None:
        text = marked.prompt.decode()
        ends = token_ends(tokenizer, lengths, text, tokens, replayed)
        if ends is not None:
            # Of tokens that spell something else than the text, only the stretch is known that they stand for.
            unlike = (e for e in replayed if e.first <= at < e.stop and ends[e.first] == ends[e.stop - 1])
            first = next((each.first for each in unlike), at)
            start = int(ends[first - 1]) if first else 0
            message, part = _belongs(marked.contents, start, max(start + 1, int(ends[at])))
    return Place(at, message, part, *_around(tokenizer, tokens, at))


def _belongs(contents: Sequence[_Content], start: int, end: int) -> tuple[int | None, str]:
    """What a token's bytes overlap. Directly behind a content, it is the content that ended too early."""
    for content in contents:
        if content.start < end and start <= content.end:
            return content.message, "content"
    following = (content.message for content in contents if content.start >= end)
    return next(following, None), "template"


def _marked_prompt(template: ChatTemplate, conversation: Conversation) -> _Marked | None:
    """The prompt and its contents; None if the template tore a mark."""
    values = [
        *(message.as_template_dict() for message in conversation.messages),
        conversation.template_kwargs,
        conversation.tools,
    ]
    opening, closing = unused_characters(values, 2)
    messages = tuple(
        _marked(message, f"{opening}{i}{closing}", closing) for i, message in enumerate(conversation.messages)
    )
    segments = render_conversation(template, replace(conversation, messages=messages))
    text = "".join(segment.text for segment in segments)
    contents, prompt, at = [], bytearray(), 0
    for found in re.finditer(f"{opening}([0-9]+){closing}([^{closing}]*){closing}", text):
        prompt += text[at : found.start()].encode()
        start, at = len(prompt), found.end()
        prompt += found[2].encode()
        contents.append(_Content(int(found[1]), start, len(prompt)))
    prompt += text[at:].encode()
    torn = opening.encode() in prompt or closing.encode() in prompt
    return None if torn else _Marked(bytes(prompt), tuple(contents))


def _marked(message: Message, opening: str, closing: str) -> Message:
    """Marks inside the white space at both ends: templates that trim it still do."""
    text = message.text
    core = text.strip()
    start = text.index(core)
    return replace(message, parts=(text[:start] + opening + core + closing + text[start + len(core) :],))


def _around(tokenizer: Tokenizer, tokens: Sequence[int], at: int) -> Iterator[str]:
    before = _text(tokenizer, tokens[max(0, at - AROUND) : at])
    yield before[-_MOST_SHOWN:]
    yield _text(tokenizer, tokens[at : at + AROUND])[:_MOST_SHOWN]


def _text(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    return b"".join(map(tokenizer.token_bytes, tokens)).decode("utf-8", "replace")
