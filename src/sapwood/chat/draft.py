"""A message while it is being written: of any number of pieces, in time linear in them."""

from __future__ import annotations

from dataclasses import dataclass, field

from sapwood.chat.messages import Message, Role, ToolCall


@dataclass(slots=True)
class Draft:
    """Attributes:
    parts: text parts in order.
    thoughts: what the assistant thought, in pieces between which nothing stands.
    joined: whether nothing stands between the parts either, so that they are one.
    """

    role: Role
    parts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    name: str | None = None
    tool_call_id: str | None = None
    joined: bool = False

    def message(self) -> Message:
        return Message(
            self.role,
            ("".join(self.parts),) if self.joined and self.parts else tuple(self.parts),
            name=self.name,
            tool_call_id=self.tool_call_id,
            tool_calls=tuple(self.calls),
            reasoning="".join(self.thoughts) if self.thoughts else None,
        )
