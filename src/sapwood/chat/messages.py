"""The neutral model of a conversation: every dialect is parsed into it, every template rendered from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "developer", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. `parts` are its text parts in order; a plain string is one part, with the same prompt."""

    role: Role
    parts: tuple[str, ...]
    name: str | None = None
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        """The parts as one text, each on a line of its own.

        Most templates take a string only. A line break keeps what a client sent as separate blocks apart
        where joining with nothing would make one word of two; one part alone is its very text.
        """
        return "\n".join(self.parts)

    def as_template_dict(self) -> dict[str, str]:
        """The message as templates expect it: `role`, `content` and the optional fields that are set."""
        # Few templates know `developer`; it is the newer name of the same role.
        fields = {"role": "system" if self.role == "developer" else self.role, "content": self.text}
        if self.name is not None:
            fields["name"] = self.name
        if self.tool_call_id is not None:
            fields["tool_call_id"] = self.tool_call_id
        return fields


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages and how to end their prompt."""

    messages: tuple[Message, ...]
    add_generation_prompt: bool = True
    """Open the assistant's turn after the last message."""
    continue_final_message: bool = False
    """Leave the last (assistant) message open, so that the answer goes on from its text."""
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """The call's own variables for the template, such as `enable_thinking`: any JSON."""

    @property
    def size(self) -> int:
        """Bytes (UTF-8) of everything that the template is given to write."""
        texts = (text for message in self.messages for text in message.as_template_dict().values())
        own = json.dumps(self.template_kwargs, ensure_ascii=False) if self.template_kwargs else ""
        return sum(len(text.encode()) for text in texts) + len(own.encode())
