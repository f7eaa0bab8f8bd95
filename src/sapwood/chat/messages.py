"""The neutral model of a conversation: every dialect is parsed into it, every template rendered from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "developer", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the assistant made. `arguments` is its JSON, as it was written: the order of keys is kept."""

    id: str
    name: str
    arguments: str

    def as_template_dict(self, *, text: bool = False) -> dict[str, Any]:
        """The call as templates expect it: its arguments as an object (or as `text`), if they are one."""
        arguments: Any = self.arguments
        if not text:
            parsed = parsed_object(self.arguments)
            arguments = self.arguments if parsed is None else parsed
        return {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": arguments},
        }


def parsed_object(text: str) -> dict[str, Any] | None:
    """The JSON object in `text`, or None if it is no such."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. `parts` are its text parts in order; a plain string is one part, with the same prompt."""

    role: Role
    parts: tuple[str, ...]
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    """Of an assistant's turn."""
    reasoning: str | None = None
    """What the assistant thought before it answered, if a client sends it back."""

    @property
    def text(self) -> str:
        """The parts as one text, each on a line of its own.

        Most templates take a string only. A line break keeps what a client sent as separate blocks apart
        where joining with nothing would make one word of two; one part alone is its very text.
        """
        return "\n".join(self.parts)

    def as_template_dict(self, *, text_arguments: bool = False) -> dict[str, Any]:
        """The message as templates expect it: `role`, `content` and the optional fields that are set.

        `text_arguments` leaves the arguments of calls the JSON text that they are.
        """
        # Few templates know `developer`; it is the newer name of the same role.
        fields: dict[str, Any] = {
            "role": "system" if self.role == "developer" else self.role,
            "content": self.text,
        }
        if self.name is not None:
            fields["name"] = self.name
        if self.tool_call_id is not None:
            fields["tool_call_id"] = self.tool_call_id
        if self.reasoning is not None:
            fields["reasoning_content"] = self.reasoning
        if self.tool_calls:
            fields["tool_calls"] = [call.as_template_dict(text=text_arguments) for call in self.tool_calls]
        return fields


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages and how to end their prompt."""

    messages: tuple[Message, ...]
    add_generation_prompt: bool = True
    """Open the assistant's turn after the last message."""
    continue_final_message: bool = False
    """Leave the last (assistant) message open, so that the answer goes on from its text."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """What the assistant may call, as OpenAI writes it: `{"type": "function", "function": {…}}`, keys in the
    client's order."""
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """The call's own variables for the template, such as `enable_thinking`: any JSON."""

    @property
    def size(self) -> int:
        """Bytes (UTF-8) of everything that the template is given to write."""
        fields = (message.as_template_dict(text_arguments=True) for message in self.messages)
        own = (value for value in (self.template_kwargs, self.tools) if value)
        return sum(_size(value) for each in fields for value in each.values()) + sum(map(_size, own))


def _size(value: Any) -> int:
    return len((value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode())
