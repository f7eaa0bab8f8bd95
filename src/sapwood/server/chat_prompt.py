"""A chat's prompt as every dialect makes it: earlier answers in their own tokens, and this one kept for later.

prompt = chat_prompt(order, conversation, scope)     # `prompt.before(form)` goes to the engine
render = prompt.remembered(render, request, reading) # the render that knows what the client is told
Job(…, place=prompt.place)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sapwood.chat import (
    Conversation,
    Place,
    Render,
    ToolReading,
    ToolUse,
    constrained,
    place_in_conversation,
    place_in_prompt,
)
from sapwood.chat.remember import Keeping, Remembering
from sapwood.chat.replay import EncodedChat, Replayed, encode_chat
from sapwood.chat.replies import OwnReplies
from sapwood.chat.spots import Spot, block_ends
from sapwood.chat.thinking import closed
from sapwood.server.caller import Caller
from sapwood.server.generate import Order
from sapwood.server.ports import Built
from sapwood.server.room import PromptRoom
from sapwood.server.slot import Slot
from sapwood.types import Constraint, Request, Scope

_HERE = Scope()


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A conversation and its tokens, some of which may be `replayed`."""

    conversation: Conversation
    encoded: EncodedChat
    built: Built
    lengths: Sequence[int]
    replies: OwnReplies

    @property
    def tokens(self) -> tuple[int, ...]:
        return self.encoded.tokens

    @property
    def replayed(self) -> tuple[Replayed, ...]:
        return self.encoded.replayed

    def before(self, form: Constraint | None) -> tuple[int, ...]:
        """The tokens that the answer follows: where it must have a form, no thought is left open."""
        if form is None or not self.built.template.thinks:
            return self.tokens
        return closed(self.built.tokenizer, self.conversation, self.tokens)

    def place(self, _prompt: int, token: int) -> Place:
        """As `Job.place`."""
        built = self.built
        if token >= len(self.tokens):  # A route wrote more behind the conversation.
            return place_in_prompt(built.tokenizer, self.tokens, token)
        return place_in_conversation(
            built.tokenizer,
            self.lengths,
            built.template,
            self.conversation,
            self.tokens,
            token,
            self.replayed,
        )

    def ends(self, spots: Sequence[Spot]) -> tuple[int, ...]:
        """As `block_ends`."""
        built = self.built
        return block_ends(
            built.tokenizer,
            self.lengths,
            built.template,
            self.conversation,
            self.tokens,
            spots,
            self.replayed,
        )

    def remembered(self, render: Render, request: Request, reading: ToolReading | None = None) -> Render:
        """`render`, the answers to `request` kept. `reading` is how it reads them, None where all is text."""
        opening = self.encoded.opening
        if opening is None or request.prompt != self.tokens:
            return render
        goes_on = self.conversation.continue_final_message
        # Of an answer with calls that were not told, all are kept, so that it is not taken for what was told.
        whole = None if reading is None else replace(reading, parallel=True)
        keeping = Keeping(
            self.replies,
            opening,
            self.built.tokenizer,
            self.tokens,
            stops=bool(request.params.stop),
            reader=None if whole is None else lambda: whole.reader(""),
            markers={} if reading is None else reading.markers,
            continued=self.conversation.messages[-1].text if goes_on else "",
        )
        return Remembering(render, keeping)


def answer_form(
    built: Built, wanted: Constraint | None, conversation: Conversation, use: ToolUse | None
) -> Constraint | None:
    """As `constrained`, of the model's way to write calls."""
    style = built.template.tool_style
    markers = ToolReading.of(built.tokenizer, style, frozenset()).markers
    return constrained(wanted, conversation.tools, use, style, markers)


def chat_prompt(order: Order, conversation: Conversation, scope: Scope = _HERE) -> ChatPrompt:
    """The prompt of a conversation of the caller's. Raises RequestError where the template refuses it."""
    own = order.replies.of(replace(scope, tenant=order.caller.tenant))
    return encoded_prompt(order.built, order.room, own, conversation)


def encoded_prompt(
    built: Built, room: PromptRoom, replies: OwnReplies, conversation: Conversation
) -> ChatPrompt:
    """As `chat_prompt`, where there is no order."""
    encoded = encode_chat(built.tokenizer, built.template, conversation, replies)
    return ChatPrompt(conversation, encoded, built, room.lengths, replies)


def chat_tokens(
    slot: Slot, caller: Caller, conversation: Conversation, scope: Scope = _HERE
) -> tuple[int, ...]:
    """The tokens that `chat_prompt` would make, for routes that only count them."""
    own = slot.replies.of(replace(scope, tenant=caller.tenant))
    return encoded_prompt(slot.get(), slot.room, own, conversation).tokens
