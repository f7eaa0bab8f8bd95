"""Messages of OpenAI-shaped chat bodies → the neutral model."""

from __future__ import annotations

from typing import Any, Literal

from sapwood.chat.body import Body, Text, at, clean_text, shown, text_in
from sapwood.chat.messages import Message, Role
from sapwood.chat.openai_tools import parse_tool_calls
from sapwood.chat.unsupported import MESSAGE_REFUSED, refuse
from sapwood.errors import RequestError

MAX_PARTS = 4096


class MessageBody(Body):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Any = None
    name: Text | None = None
    tool_call_id: Text | None = None
    tool_calls: Any = None
    reasoning_content: Text | None = None
    reasoning: Text | None = None
    """Another name of it, of newer servers."""


def parse_message(body: MessageBody, path: str) -> Message:
    """Raises RequestError that names the offending field; `path` is the message's."""
    refuse(body.model_extra or {}, MESSAGE_REFUSED, f"{path}.")
    role: Role = body.role
    calls = parse_tool_calls(body.tool_calls, f"{path}.tool_calls")
    if calls and role != "assistant":
        raise RequestError(f"'{path}.tool_calls' is the assistant's to make", param=f"{path}.tool_calls")
    return Message(
        role,
        # Beside calls, no text at all and an empty one are the same.
        () if calls and body.content in (None, "", []) else _parts(body.content, f"{path}.content"),
        name=body.name,
        tool_call_id=body.tool_call_id,
        tool_calls=calls,
        reasoning=(body.reasoning_content or body.reasoning) if role == "assistant" else None,
    )


def _parts(content: object, path: str) -> tuple[str, ...]:
    if isinstance(content, str):
        return (at(path, clean_text, content),)
    if content is None:
        raise RequestError(f"{path!r} is required", param=path, code="missing_required_parameter")
    if not isinstance(content, list) or not content:
        raise RequestError(
            f"{path!r} is {shown(content)}; it must be a string or a list of text parts", param=path
        )
    if len(content) > MAX_PARTS:
        raise RequestError(f"{path!r} has {len(content)} parts; at most {MAX_PARTS} are taken", param=path)
    return tuple(_part(part, f"{path}[{i}]") for i, part in enumerate(content))


def _part(part: object, path: str) -> str:
    if not isinstance(part, dict):
        raise RequestError(
            f"{path!r} is {shown(part)}; it must be an object with 'type' and 'text'", param=path
        )
    if part.get("type") != "text":
        raise RequestError(
            f"'{path}.type' is {shown(part.get('type'))}; only text parts are supported", param=f"{path}.type"
        )
    return text_in(part, "text", path)
