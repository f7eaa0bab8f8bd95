"""System, tools and turns of an Anthropic-shaped body → the neutral conversation, block by block."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sapwood.chat.anthropic_blocks import (
    SOURCES,
    block_list,
    inner_texts,
    not_served,
    refuse_nested_markers,
    source_text,
)
from sapwood.chat.anthropic_markers import Level, Piece, parse_marker
from sapwood.chat.body import Body, at, clean_text, object_at, shown, text_in
from sapwood.chat.draft import Draft
from sapwood.chat.messages import Conversation, Role, ToolCall
from sapwood.chat.openai_tools import MAX_DEPTH
from sapwood.chat.spots import Spot
from sapwood.chat.template_kwargs import check_json
from sapwood.errors import RequestError

BILLING_PREFIX = "x-anthropic-billing-header"
"""Claude Code begins the system text with a line of this name that differs from request to request: at the very
start of the prompt it would leave nothing to reuse, so it is left out."""

FAILED = "Error:"
"""A line before the result of a tool that failed: templates know of no such mark."""

_EMPTY = "it holds no text"
_THINKING = "thinking cannot be marked; it is cached with what follows it"


class TurnBody(Body):
    role: Literal["user", "assistant", "system"]
    content: Any


@dataclass(frozen=True, slots=True)
class Turns:
    conversation: Conversation
    pieces: tuple[Piece, ...]
    """All blocks, in prompt order."""


def parse_turns(system: object, tools: Sequence[object] | None, turns: Sequence[TurnBody]) -> Turns:
    """The conversation of a body. Raises RequestError that names the offending field."""
    built = _Builder()
    for i, tool in enumerate(tools or ()):
        built.add_tool(tool, f"tools[{i}]")
    built.add_system(system)
    for i, turn in enumerate(turns):
        built.add_turn(turn.role, turn.content, f"messages[{i}].content")
    return built.finish()


class _Builder:
    """Turns of one role in a row become one message: many templates take no other order than by turns."""

    def __init__(self) -> None:
        self._messages: list[Draft] = []
        self._tools: list[Mapping[str, Any]] = []
        self._pieces: list[Piece] = []

    def finish(self) -> Turns:
        goes_on = self._messages[-1].role == "assistant"
        if goes_on and self._messages[-1].calls:
            raise RequestError(
                "the last of 'messages' calls a tool; its tool_result must follow", param="messages"
            )
        conversation = Conversation(
            tuple(draft.message() for draft in self._messages),
            add_generation_prompt=not goes_on,
            continue_final_message=goes_on,
            tools=tuple(self._tools),
        )
        return Turns(conversation, tuple(self._pieces))

    def add_tool(self, tool: object, path: str) -> None:
        fields = object_at(tool, path)
        if fields.get("type", "custom") not in (None, "custom"):
            raise RequestError(
                f"'{path}.type' is {shown(fields['type'])}; only tools with a schema of their own are supported",
                param=f"{path}.type",
            )
        schema = _json(fields.get("input_schema"), f"{path}.input_schema")
        function: dict[str, Any] = {"name": text_in(fields, "name", path)}
        if fields.get("description") is not None:
            function["description"] = text_in(fields, "description", path)
        function["parameters"] = schema
        self._note(fields, path, "tools", Spot("tool", len(self._tools)))
        self._tools.append({"type": "function", "function": function})

    def add_system(self, system: object) -> None:
        if isinstance(system, str):
            if system.startswith(BILLING_PREFIX):
                system = system.partition("\n")[2]
            system = [{"type": "text", "text": system}] if system else []
        elif system is None:
            system = []
        for i, block in enumerate(block_list(system, "system")):
            path = f"system[{i}]"
            fields = object_at(block, path)
            if fields.get("type") != "text":
                raise not_served(fields, path, "text")
            text = text_in(fields, "text", path)
            if i == 0 and text.startswith(BILLING_PREFIX):
                self._note(fields, path, "system", None)
            else:
                self._add_text(fields, path, "system", "system", text)

    def add_turn(self, role: Literal["user", "assistant", "system"], content: object, path: str) -> None:
        if isinstance(content, str):
            text = at(path, clean_text, content)
            self._add_text({}, path, "messages", role, text)
            return
        blocks = block_list(content, path)
        if not blocks:
            raise RequestError(f"{path!r} is empty; it must hold at least one block", param=path)
        for i, block in enumerate(blocks):
            self._add_block(role, object_at(block, f"{path}[{i}]"), f"{path}[{i}]")

    def _add_block(
        self, role: Literal["user", "assistant", "system"], block: Mapping[str, Any], path: str
    ) -> None:
        match role, block.get("type"):
            case _, "text":
                refuse_nested_markers(block.get("citations"), f"{path}.citations")
                self._add_text(block, path, "messages", role, text_in(block, "text", path))
            case "user", "document" | "search_result":
                self._add_text(block, path, "messages", role, source_text(block, path))
            case "user", "tool_result":
                self._add_result(block, path)
            case "assistant", "tool_use":
                self._add_call(block, path)
            case "assistant", "thinking":
                self._turn("assistant").thoughts.append(text_in(block, "thinking", path))
                self._note(block, path, "messages", None, _THINKING)
            case "assistant", "redacted_thinking":
                self._turn("assistant")
                self._note(block, path, "messages", None, _THINKING)
            case "user", _:
                raise not_served(block, path, "text, document, search_result and tool_result")
            case "assistant", _:
                raise not_served(block, path, "text, thinking and tool_use")
            case _:
                raise not_served(block, path, "text")

    def _add_text(self, block: Mapping[str, Any], path: str, level: Level, role: Role, text: str) -> None:
        parts = self._turn(role).parts
        spot = Spot("part", len(self._messages) - 1, len(parts))
        parts.append(text)
        self._note(block, path, level, spot, None if text else _EMPTY)

    def _add_result(self, block: Mapping[str, Any], path: str) -> None:
        content = block.get("content")
        parts = inner_texts([] if content is None else content, f"{path}.content", SOURCES)
        failed = block.get("is_error")
        if failed is not None and not isinstance(failed, bool):
            raise RequestError(
                f"'{path}.is_error' is {shown(failed)}; it must be true or false", param=f"{path}.is_error"
            )
        if failed:
            parts = (FAILED, *parts)
        answered = text_in(block, "tool_use_id", path)
        self._messages.append(Draft("tool", list(parts), tool_call_id=answered))
        self._note(block, path, "messages", Spot("part", len(self._messages) - 1, len(parts) - 1))

    def _add_call(self, block: Mapping[str, Any], path: str) -> None:
        arguments = json.dumps(_json(block.get("input"), f"{path}.input"), ensure_ascii=False)
        call = ToolCall(text_in(block, "id", path), text_in(block, "name", path), arguments)
        calls = self._turn("assistant").calls
        self._note(block, path, "messages", Spot("call", len(self._messages) - 1, len(calls)))
        calls.append(call)

    def _turn(self, role: Role) -> Draft:
        """The message of `role` that is being written, which is the last."""
        if not self._messages or self._messages[-1].role != role:
            self._messages.append(Draft(role))
        return self._messages[-1]

    def _note(
        self,
        block: Mapping[str, Any],
        path: str,
        level: Level,
        spot: Spot | None,
        unmarkable: str | None = None,
    ) -> None:
        ttl = parse_marker(block.get("cache_control"), f"{path}.cache_control")
        self._pieces.append(Piece(path, level, spot, unmarkable, ttl))


def _json(value: object, path: str) -> Mapping[str, Any]:
    """An object that a template can write. Raises RequestError."""
    fields = object_at(value, path)
    check_json(fields, path, MAX_DEPTH)
    return fields
