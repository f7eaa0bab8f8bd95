"""The input of a decisions call → messages: a text, or a list of messages, tool calls and what came of these."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NoReturn

from sapwood.chat.body import at, clean_text, object_at, shown, text_in
from sapwood.chat.draft import Draft
from sapwood.chat.messages import Message, Role, ToolCall, parsed_object
from sapwood.chat.openai import MAX_MESSAGES
from sapwood.chat.openai_messages import MAX_PARTS
from sapwood.chat.prompt_cache import Breakpoint, breakpoint_ttl
from sapwood.chat.template_kwargs import check_json
from sapwood.errors import RequestError

JSON_LEVELS, JSON_VALUES, JSON_BYTES = 32, 10_000, 256 * 2**10
"""Of one `input_json` part: containers within each other, values, bytes as compact text."""

_DEPTH = 64
_POINT = "prompt_cache_breakpoint"
_INSTRUCTIONS: Mapping[str, str] = MappingProxyType({"input_text": "text"})
_PARTS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "user": {"input_text": "text", "input_json": "data"},
        "developer": _INSTRUCTIONS,
        "system": _INSTRUCTIONS,
        "assistant": {"output_text": "text", "refusal": "refusal"},
        "tool": {"input_text": "text"},
    }
)
"""Who speaks → kind of part → the field that holds what it says."""


@dataclass(frozen=True, slots=True)
class DecisionInput:
    """What all questions of a call are about, and where its clients marked the ends of prefixes."""

    messages: tuple[Message, ...]
    breakpoints: tuple[Breakpoint, ...] = ()


def parse_input(value: object) -> DecisionInput:
    """The field `input`. Raises RequestError that names what is wrong."""
    if isinstance(value, str):
        found = DecisionInput((Message("user", (at("input", clean_text, value),)),))
    elif isinstance(value, list):
        if len(value) > MAX_MESSAGES:
            raise RequestError(
                f"'input' has {len(value)} entries; at most {MAX_MESSAGES} are taken", param="input"
            )
        items = _Items()
        for i, item in enumerate(value):
            items.add(item, f"input[{i}]")
        found = DecisionInput(tuple(draft.message() for draft in items.messages), tuple(items.points))
    else:
        _refuse("input", value, "a string or a list of messages")
    if not any(message.text or message.tool_calls for message in found.messages):
        raise RequestError("'input' is empty; it must hold something to decide on", param="input")
    return found


def question_parts(value: object, path: str) -> tuple[str, ...]:
    """Instructions of a question: a text, or a list of parts as a user's."""
    return tuple(_part(each, "user", inner) for each, inner in _listed(value, path))


class _Items:
    """Folds the items of an input. A call of a tool belongs to the assistant's turn before it, if there is one."""

    def __init__(self) -> None:
        self.messages: list[Draft] = []
        self.points: list[Breakpoint] = []
        self._calls: dict[str, str] = {}

    def add(self, item: object, path: str) -> None:
        fields = object_at(item, path)
        match fields.get("type", "message"):
            case "message":
                self._message(fields, path)
            case "function_call":
                arguments = text_in(fields, "arguments", path)
                check_json(parsed_object(arguments), f"{path}.arguments", _DEPTH)
                self._call(fields, arguments or "{}", path)
            case "custom_tool_call":
                self._call(fields, json.dumps({"input": text_in(fields, "input", path)}), path)
            case "function_call_output" | "custom_tool_call_output":
                self._output(fields, path)
            case kind:
                _refuse(f"{path}.type", kind, "a message, a call of a tool, or the output of one")

    def _message(self, fields: Mapping[str, Any], path: str) -> None:
        role = fields.get("role")
        if role not in ("user", "developer", "system", "assistant"):
            _refuse(f"{path}.role", role, "user, developer, system or assistant")
        self._append(role, fields.get("content"), f"{path}.content")

    def _append(self, role: Role, content: object, path: str, call_id: str | None = None) -> None:
        parts = []
        for j, (part, inner) in enumerate(_listed(content, path)):
            parts.append(_part(part, role, inner))
            if isinstance(part, dict) and part.get(_POINT) is not None:
                self.points.append(self._point(part[_POINT], role, j, f"{inner}.{_POINT}"))
        self.messages.append(Draft(role, parts, tool_call_id=call_id))

    def _point(self, value: object, role: Role, part: int, path: str) -> Breakpoint:
        if role == "assistant":
            raise RequestError(f"{path!r} is on an answer; only input can have one", param=path)
        return Breakpoint(len(self.messages), part, breakpoint_ttl(value, path))

    def _call(self, fields: Mapping[str, Any], arguments: str, path: str) -> None:
        id, name = text_in(fields, "call_id", path), text_in(fields, "name", path)
        for field, text in (("call_id", id), ("name", name)):
            if not text or len(text) > 256:
                _refuse(f"{path}.{field}", text, "1 to 256 characters long")
        self._calls[id] = name
        call = ToolCall(id, name, arguments)
        last = self.messages[-1] if self.messages else None
        if last is not None and last.role == "assistant":
            last.calls.append(call)
        else:
            self.messages.append(Draft("assistant", calls=[call]))

    def _output(self, fields: Mapping[str, Any], path: str) -> None:
        id = text_in(fields, "call_id", path)
        if id not in self._calls:
            _refuse(f"{path}.call_id", id, "the 'call_id' of a call before it")
        self._append("tool", fields.get("output"), f"{path}.output", id)


def _listed(content: object, path: str) -> list[tuple[object, str]]:
    """The parts of a content with their paths; one text alone is one part, and its path the content's own."""
    if isinstance(content, str):
        return [(content, path)]
    if not isinstance(content, list) or not content:
        _refuse(path, content, "a string or a list of parts")
    if len(content) > MAX_PARTS:
        raise RequestError(f"{path!r} has {len(content)} parts; at most {MAX_PARTS} are taken", param=path)
    return [(part, f"{path}[{j}]") for j, part in enumerate(content)]


def _part(part: object, role: str, path: str) -> str:
    if isinstance(part, str):
        return at(path, clean_text, part)
    fields, kinds = object_at(part, path), _PARTS[role]
    kind = fields.get("type")
    if kind == "input_image":
        raise RequestError(
            f"'{path}.type' is an image; only text and JSON are supported",
            param=f"{path}.type",
            code="unsupported_parameter",
        )
    if not isinstance(kind, str) or kind not in kinds:
        _refuse(f"{path}.type", kind, f"{' or '.join(kinds)} here")
    read: Callable[[Mapping[str, Any], str, str], str] = _json if kind == "input_json" else text_in
    return read(fields, kinds[kind], path)


def _json(fields: Mapping[str, Any], name: str, path: str) -> str:
    """The value as compact JSON."""
    value, inner = fields.get(name), f"{path}.{name}"
    objects = value if isinstance(value, list) else [value]
    if not objects or not all(isinstance(each, dict) for each in objects):
        _refuse(inner, value, "an object or a list of objects")
    check_json(value, inner, JSON_LEVELS + 1)
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise RequestError(f"{inner!r} holds a number that is not finite", param=inner) from None
    if len(text.encode()) > JSON_BYTES:
        raise RequestError(f"{inner!r} has more than {JSON_BYTES} bytes", param=inner)
    _check_extent(value, inner)
    return text


def _check_extent(value: object, path: str) -> None:
    """Raises RequestError for more values, containers among them, or levels of containers than are taken."""
    count, levels, layer = 1, 0, [value]
    while layer:
        levels += 1
        inside = [v for each in layer for v in (each.values() if isinstance(each, dict) else _items(each))]
        count += len(inside)
        layer = [each for each in inside if isinstance(each, dict | list)]
    if count > JSON_VALUES or levels > JSON_LEVELS:
        raise RequestError(
            f"{path!r} is too large: at most {JSON_VALUES} values in {JSON_LEVELS} levels are taken",
            param=path,
        )


def _items(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _refuse(path: str, value: object, expected: str) -> NoReturn:
    raise RequestError(f"{path!r} is {shown(value)}; it must be {expected}", param=path)
