"""From what a call asks to the tokens that the engine gets."""

from __future__ import annotations

from collections.abc import Sequence

from sapwood.chat.lookalikes import Segment
from sapwood.chat.messages import Conversation
from sapwood.chat.template import ChatTemplate
from sapwood.chat.tokenizer import Tokenizer
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


def encode_conversation(
    tokenizer: Tokenizer, template: ChatTemplate, conversation: Conversation
) -> tuple[int, ...]:
    """Token ids of a conversation. Raises RequestError where the model's template refuses it."""
    messages = [message.as_template_dict() for message in conversation.messages]
    segments = template.render(messages, add_generation_prompt=conversation.add_generation_prompt)
    if conversation.continue_final_message:
        segments = _left_open(segments, conversation.messages[-1].text)
    ids: list[int] = []
    for n, segment in enumerate(segments):
        ids += tokenizer.encode(segment.text, special=segment.trusted, continues=n > 0)
    if not ids:
        raise RequestError("the chat template renders these messages to nothing", param="messages")
    return tuple(ids)


def _left_open(segments: Sequence[Segment], last: str) -> list[Segment]:
    """The segments up to the end of the last message's text (templates may strip it)."""
    text = "".join(segment.text for segment in segments)
    found = next((piece for piece in (last, last.strip()) if piece and piece in text), None)
    if found is None:
        raise RequestError(
            "the last message's text does not appear in the rendered prompt; it cannot be continued",
            param="continue_final_message",
        )
    room, kept = text.rindex(found) + len(found), list[Segment]()
    for segment in segments:
        kept.append(Segment(segment.text[:room], segment.trusted))
        room -= len(kept[-1].text)
    return [segment for segment in kept if segment.text]
