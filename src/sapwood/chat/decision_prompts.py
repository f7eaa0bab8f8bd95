"""A decisions call → prompts that share all of the input.

What is asked comes last in the conversation, so every prompt is

    what the template makes of the input | the question | the assistant's turn, opened | an answer | its end

and is cut into tokens at each bar: the input's are the same whatever is asked. It is rendered and encoded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sapwood.chat.decisions import DecisionCall, Question
from sapwood.chat.encode import encode_segments, render_conversation
from sapwood.chat.lookalikes import Segment, unused_characters
from sapwood.chat.messages import Conversation, Message
from sapwood.chat.template import ChatTemplate
from sapwood.chat.thinking import closed, without_thinking
from sapwood.chat.tokenizer import Tokenizer
from sapwood.errors import RequestError


@dataclass(frozen=True, slots=True)
class Asked:
    """The tokens of a question, until its answer begins; and those of its answers, each with its end."""

    question: tuple[int, ...]
    answers: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class DecisionPrompts:
    """The prompt of an answer is `shared + question + answer`.

    The last `closing` tokens of a question are not its template's: they close a thought that this opened.
    """

    shared: tuple[int, ...]
    asked: tuple[Asked, ...]
    closing: int = 0

    @property
    def input_tokens(self) -> int:
        """The shared input and each question, counted once."""
        return len(self.shared) + sum(len(each.question) for each in self.asked)

    @property
    def prompt_tokens(self) -> int:
        """Of all prompts together."""
        return sum(
            len(self.shared) + len(each.question) + len(answer)
            for each in self.asked
            for answer in each.answers
        )


def encode_decisions(
    tokenizer: Tokenizer, template: ChatTemplate, call: DecisionCall, end: tuple[int, ...]
) -> DecisionPrompts:
    """The call's tokens; `end` is what the model ends an answer with.

    Raises RequestError where the template refuses the messages, or does not write a question.
    """
    (mark,) = unused_characters([[m.as_template_dict() for m in call.input.messages]], 1)
    try:
        conversation = conversation_of(call, mark, template)
        before, after = _parted(render_conversation(template, conversation), mark)
    except RequestError as error:  # A template speaks of messages.
        raise RequestError(error.message, param="input", code=error.code, hint=error.hint) from None
    opened = tuple(
        i for each in after for i in tokenizer.encode(each.text, special=each.trusted, continues=True)
    )
    ready = closed(tokenizer, conversation, opened) if template.thinks else opened

    def encoded(text: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(text, continues=True))

    return DecisionPrompts(
        tuple(encode_segments(tokenizer, before)),
        tuple(
            Asked(
                (*encoded(question.text), *ready),
                tuple((*encoded(candidate.text), *end) for candidate in question.candidates),
            )
            for question in call.questions
        ),
        len(ready) - len(opened),
    )


def conversation_of(call: DecisionCall, question: Question | str, template: ChatTemplate) -> Conversation:
    """The input and a question, at the end of the last message if that is a user's: few templates take two.

    Models that think are asked to answer at once.
    """
    text = question if isinstance(question, str) else question.text
    *before, last = call.input.messages
    if last.role == "user":
        # The empty line is part of the input.
        asked = (*before, replace(last, parts=(*last.parts, f"\n{text}")))
    else:
        asked = (*before, last, Message("user", (text,)))
    return without_thinking(template, Conversation(asked))


def _parted(segments: Sequence[Segment], mark: str) -> tuple[list[Segment], list[Segment]]:
    """What is written before the mark, and what after it."""
    marked = [i for i, segment in enumerate(segments) if mark in segment.text]
    if len(marked) != 1 or segments[marked[0]].text.count(mark) != 1:
        raise RequestError(
            "the chat template does not write the last message just once; no question can be put there"
        )
    (at,) = marked
    start, end = segments[at].text.split(mark)
    trusted = segments[at].trusted
    before = [*segments[:at], Segment(start, trusted)]
    after = [Segment(end, trusted), *segments[at + 1 :]]
    return [each for each in before if each.text], [each for each in after if each.text]
