"""A cached object's tokens, and prompts that go on from them: a strict prefix, token for token.

A template writes a conversation as a whole, so the object's own text is found by where it would go on: behind its
last turn, or, where the template takes no two turns of a user in a row, within it. That the whole prompt begins
with that text is looked at each time. Where it does not (some templates write the tools last, or the system
text), what follows is written as a conversation of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sapwood.chat.encode import encode_segments, render_conversation
from sapwood.chat.gemini import ending
from sapwood.chat.lookalikes import Segment, unused_characters
from sapwood.chat.messages import Conversation, Message
from sapwood.chat.template import ChatTemplate
from sapwood.chat.tokenizer import Tokenizer
from sapwood.errors import RequestError


@dataclass(frozen=True, slots=True)
class CachedPrefix:
    """Attributes:
    conversation: what the object holds.
    text: what the template made of it.
    tokens: of the text.
    left_open: whether it ends within a user's turn.
    """

    conversation: Conversation
    text: str
    tokens: tuple[int, ...]
    left_open: bool


def make_prefix(tokenizer: Tokenizer, template: ChatTemplate, conversation: Conversation) -> CachedPrefix:
    """The prefix of all prompts that begin with `conversation`. Raises RequestError where the template refuses it."""
    conversation = replace(conversation, add_generation_prompt=False, continue_final_message=False)
    turns = any(message.role not in ("system", "developer") for message in conversation.messages)
    closed = _rendered(template, conversation) if turns else None
    segments, left_open = closed, False
    if closed is None or not _goes_on(template, conversation, closed, left_open=False):
        opened = _before_a_user_speaks(template, conversation)
        if opened is not None and _goes_on(template, conversation, opened, left_open=True):
            segments, left_open = opened, True
    if segments is None:
        if not conversation.messages:
            raise RequestError("the chat template writes no tools without turns", param="contents")
        segments = render_conversation(template, conversation)
    return CachedPrefix(conversation, _text(segments), tuple(encode_segments(tokenizer, segments)), left_open)


def behind(prefix: CachedPrefix, turns: Sequence[Message]) -> Conversation:
    """The conversation of an object and the turns after it, to be answered."""
    messages = _joined(prefix.conversation.messages, turns, prefix.left_open)
    return ending(messages, prefix.conversation.tools)


def continue_prefix(
    tokenizer: Tokenizer,
    template: ChatTemplate,
    prefix: CachedPrefix,
    turns: Sequence[Message],
    whole: Conversation,
) -> tuple[int, ...]:
    """The prompt of `whole`, which is `turns` behind the prefix. Raises RequestError where the template refuses it."""
    segments = _rendered(template, whole)
    if segments is not None and _text(segments).startswith(prefix.text):
        return (*prefix.tokens, *_encoded(tokenizer, _cut(segments, len(prefix.text))[1]))
    alone = replace(ending(tuple(turns), ()), template_kwargs=whole.template_kwargs)
    rest = _encoded(tokenizer, render_conversation(template, alone))
    if rest and rest[0] == tokenizer.bos_id:
        del rest[0]
    return (*prefix.tokens, *rest)


def _before_a_user_speaks(template: ChatTemplate, conversation: Conversation) -> list[Segment] | None:
    texts = [message.as_template_dict() for message in conversation.messages]
    (mark,) = unused_characters([texts, conversation.tools], 1)
    spoken = _joined(conversation.messages, [Message("user", (mark,))], merged=True)
    segments = _rendered(template, replace(conversation, messages=spoken))
    at = -1 if segments is None else _text(segments).find(mark)
    return None if segments is None or at < 0 else _cut(segments, at)[0]


def _goes_on(
    template: ChatTemplate, conversation: Conversation, segments: Sequence[Segment], *, left_open: bool
) -> bool:
    """Whether a prompt with one more turn would begin so."""
    messages = _joined(conversation.messages, [Message("user", ("x",))], left_open)
    rendered = _rendered(template, replace(conversation, messages=messages, add_generation_prompt=True))
    return rendered is not None and _text(rendered).startswith(_text(segments))


def _joined(before: Sequence[Message], turns: Sequence[Message], merged: bool) -> tuple[Message, ...]:
    """The turns behind those before; where `merged`, a user goes on in the turn that is a user's."""
    if merged and before and turns and before[-1].role == turns[0].role == "user":
        both = replace(before[-1], parts=(*before[-1].parts, *turns[0].parts))
        return (*before[:-1], both, *turns[1:])
    return (*before, *turns)


def _rendered(template: ChatTemplate, conversation: Conversation) -> list[Segment] | None:
    """None where the template refuses."""
    if not conversation.messages:
        return None
    try:
        return render_conversation(template, conversation)
    except RequestError:
        return None


def _encoded(tokenizer: Tokenizer, segments: Sequence[Segment]) -> list[int]:
    """What follows other tokens."""
    ids: list[int] = []
    for segment in segments:
        ids += tokenizer.encode(segment.text, special=segment.trusted, continues=True)
    return ids


def _cut(segments: Sequence[Segment], room: int) -> tuple[list[Segment], list[Segment]]:
    """The first `room` characters, and the rest."""
    before: list[Segment] = []
    after: list[Segment] = []
    for segment in segments:
        before.append(Segment(segment.text[:room], segment.trusted))
        after.append(Segment(segment.text[room:], segment.trusted))
        room = max(0, room - len(segment.text))
    return [each for each in before if each.text], [each for each in after if each.text]


def _text(segments: Sequence[Segment]) -> str:
    return "".join(segment.text for segment in segments)
