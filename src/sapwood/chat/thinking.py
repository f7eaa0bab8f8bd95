"""What a model thinks before it answers, told apart from the answer: `<think>…</think>` at its very start.

Qwen3, DeepSeek-R1, SmolLM3 and others are trained so. Their templates may open the tag themselves, close it at once
so that nothing is thought, and read a switch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from sapwood.chat.messages import Conversation

if TYPE_CHECKING:
    from sapwood.chat.tokenizer import Tokenizer

OPEN, CLOSE = "<think>", "</think>"
TAGS = (OPEN, CLOSE)
SWITCHES = ("enable_thinking", "thinking")
"""Variables with which templates are told whether to let the model think."""

_TAIL = 32
"""Tokens of a prompt in which a tag that its template opened is found."""


@dataclass(frozen=True, slots=True)
class Thought:
    """What the model thinks before it answers, or a part of it."""

    text: str


class ThoughtReader:
    """Splits one answer. Feed pieces of text; what comes back is final, and where it was cut makes no difference.

    White space around a thought is dropped. One that is never closed is a thought to the end.
    `thought` is whether one was begun.
    """

    def __init__(self, *, opened: bool) -> None:
        """`opened`: the prompt ends in the opening tag. A model may write it all the same."""
        self._opened = opened
        self._state: Literal["start", "thought", "after", "text"] = "start"
        self._text = ""
        self._blank = True
        self.thought = False

    @property
    def thinks(self) -> bool | None:
        """Whether a thought is open; None while that cannot be told."""
        return None if self._state == "start" else self._state == "thought"

    def feed(self, text: str) -> list[str | Thought]:
        if self._state == "text":
            return [text] if text else []
        self._text += text
        pieces: list[str | Thought] = []
        if self._state == "start":
            self._start(last=False)
        if self._state == "thought":
            pieces += self._thought(last=False)
        return pieces + self._rest()

    def end(self) -> list[str | Thought]:
        """What was held back, when nothing more will come."""
        if self._state == "start":
            self._start(last=True)
        return self._thought(last=True) if self._state == "thought" else self._rest()

    def _start(self, *, last: bool) -> None:
        begun = self._text.lstrip()
        if begun.startswith(OPEN):
            self._state, self._text = "thought", begun.removeprefix(OPEN)
        elif last or not OPEN.startswith(begun):
            self._state = "thought" if self._opened else "text"
        self.thought = self._state == "thought"

    def _thought(self, *, last: bool) -> list[str | Thought]:
        if self._blank:
            self._text = self._text.lstrip()
        end = self._text.find(CLOSE)
        if end >= 0:
            thought, self._text = self._text[:end].rstrip(), self._text[end + len(CLOSE) :]
            self._state = "after"
        else:
            kept = 0 if last else self._may_close()
            thought = self._text[: len(self._text) - kept].rstrip()
            self._text = self._text[len(thought) :]
        self._blank = self._blank and not thought
        return [Thought(thought)] if thought else []

    def _may_close(self) -> int:
        """How much of the text's end may be the closing tag's beginning."""
        return next((n for n in range(len(CLOSE) - 1, 0, -1) if self._text.endswith(CLOSE[:n])), 0)

    def _rest(self) -> list[str | Thought]:
        if self._state == "after":
            self._text = self._text.lstrip()
            self._state = "text" if self._text else "after"
        if self._state != "text" or not self._text:
            return []
        text, self._text = self._text, ""
        return [text]


class Switched(Protocol):
    """What is asked of a chat template."""

    @property
    def thinks(self) -> bool: ...
    @property
    def thinking_switch(self) -> str | None: ...


def switch_of(reads: frozenset[str] | set[str]) -> str | None:
    """The variable of `SWITCHES` among those that a template reads."""
    return next((name for name in SWITCHES if name in reads), None)


def with_thinking(template: Switched, conversation: Conversation, *, wanted: bool) -> Conversation:
    """The conversation with the template's switch set, if it has one that the call did not set itself."""
    switch = template.thinking_switch
    if not template.thinks or switch is None or switch in conversation.template_kwargs:
        return conversation
    return _set(conversation, switch, wanted)


def without_thinking(template: Switched, conversation: Conversation) -> Conversation:
    """The conversation with the template's switch off, whatever the call says."""
    switch = template.thinking_switch
    return _set(conversation, switch, False) if template.thinks and switch is not None else conversation


def prompted(
    template: Switched, conversation: Conversation, *, formed: bool, thinks: bool | None
) -> Conversation:
    """As it is put to the model, which does not think before an answer that must have a form (`formed`).

    `thinks` says whether it is to think else; None leaves that to the template.
    """
    if formed:
        return without_thinking(template, conversation)
    return conversation if thinks is None else with_thinking(template, conversation, wanted=thinks)


def _set(conversation: Conversation, switch: str, wanted: bool) -> Conversation:
    kwargs: Mapping[str, Any] = {**conversation.template_kwargs, switch: wanted}
    return replace(conversation, template_kwargs=kwargs)


def left_open(tokenizer: Tokenizer, conversation: Conversation, prompt: Sequence[int]) -> bool:
    """Whether the prompt of a conversation ends inside a thought."""
    if conversation.continue_final_message:
        text = conversation.messages[-1].text
        return text.rfind(OPEN) > text.rfind(CLOSE)
    return tokenizer.decode(prompt[-_TAIL:], skip_special=False).rstrip().endswith(OPEN)


def closed(tokenizer: Tokenizer, conversation: Conversation, prompt: tuple[int, ...]) -> tuple[int, ...]:
    """The prompt, and the end of the thought that it left open, if it did."""
    if not left_open(tokenizer, conversation, prompt):
        return prompt
    return (*prompt, *tokenizer.encode(f"\n{CLOSE}\n\n", special=True, continues=True))
